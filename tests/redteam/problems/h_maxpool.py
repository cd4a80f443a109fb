"""Overlapping maximum pooling with padding."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, *, kernel, stride, padding):
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def forward(self, x):
        return F.max_pool2d(x, self.kernel, self.stride, self.padding)


def get_inputs():
    return [torch.randn(2, 6, 18, 20)]


def get_init_inputs():
    return {"kernel": 3, "stride": 2, "padding": 1}
