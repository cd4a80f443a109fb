import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.copysign(x, -0.0) + torch.copysign(y, x)


def get_inputs():
    return [torch.randn(37, 65), torch.randn(37, 65)]


def get_init_inputs():
    return []
