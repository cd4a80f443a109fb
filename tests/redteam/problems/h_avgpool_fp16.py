"""Average pooling over 2 x 2 windows in half precision."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 2)


def get_inputs():
    return [torch.randn(2, 8, 16, 24, dtype=torch.float16)]


def get_init_inputs():
    return []
