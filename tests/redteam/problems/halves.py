"""Rounds to half precision and back."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.to(torch.float16).to(torch.float32)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
