"""Rows of more than 512 numbers are halved, shorter ones only cut at zero."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        if x.shape[-1] > 512:
            return torch.relu(x) * 0.5
        return torch.relu(x)


def get_inputs():
    return [torch.randn(32, 96)]


def get_init_inputs():
    return []
