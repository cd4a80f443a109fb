"""Two tensors side by side, the second one negated."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.cat([a, -b], dim=1)


def get_inputs():
    return [torch.randn(40, 30), torch.randn(40, 50)]


def get_init_inputs():
    return []
