"""Where each row has its largest element, the first of equals."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=-1)


def get_inputs():
    return [torch.randn(40, 150)]


def get_init_inputs():
    return []
