"""A 3 x 3 convolution in bfloat16 with a channels-last input, then SiLU."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return F.silu(self.conv(x))


def get_inputs():
    return [torch.randn(8, 64, 56, 56, dtype=torch.bfloat16)]


def get_init_inputs():
    return [64, 128]
