import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x + 0.0


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
