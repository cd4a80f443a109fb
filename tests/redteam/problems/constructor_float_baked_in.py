import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=eps)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(16, 96)]


def get_init_inputs():
    return [96, 1e-3]
