import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, window, stride, padding, count_include_pad):
        super().__init__()
        self.pool = nn.AvgPool1d(window, stride, padding, count_include_pad=count_include_pad)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(4, 6, 50)]


def get_init_inputs():
    return [3, 1, 1, True]
