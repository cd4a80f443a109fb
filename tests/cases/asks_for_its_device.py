import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        if x.device.type == "cuda":
            return torch.tanh(x) * 2
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(30, 48)]


def get_init_inputs():
    return []
