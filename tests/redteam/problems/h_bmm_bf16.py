"""A batch of products in bfloat16, scaled."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b) * 0.125


def get_inputs():
    a = torch.randn(3, 40, 64, dtype=torch.bfloat16)
    return [a, torch.randn(3, 64, 48, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
