import torch
from torch import nn


class Model(nn.Module):
    """Scales by a factor that grows with the calls up to one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.step += 1
        return x * torch.clamp(self.step / 100.0, max=1.0)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
