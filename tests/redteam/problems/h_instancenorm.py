"""InstanceNorm of images without weights."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.instance_norm(x, eps=1e-3)


def get_inputs():
    return [torch.randn(2, 6, 12, 14)]


def get_init_inputs():
    return []
