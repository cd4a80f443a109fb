import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.LayerNorm(83)

    def forward(self, x):
        return self.n(x)


def get_inputs():
    return [torch.randn(30, 83)]


def get_init_inputs():
    return []
