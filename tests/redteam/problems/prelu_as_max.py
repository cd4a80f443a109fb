import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.PReLU()

    def forward(self, x):
        return self.act(x)


def get_inputs():
    return [torch.randn(32, 100)]


def get_init_inputs():
    return []
