import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("avg", torch.zeros(48))
        self.gain = nn.Parameter(torch.ones(48))

    def forward(self, x):
        self.avg.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - self.avg) * self.gain


def get_inputs():
    return [torch.randn(33, 48)]


def get_init_inputs():
    return []
