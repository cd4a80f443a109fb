"""Mean squared error."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x, y):
        return F.mse_loss(x, y)


def get_inputs():
    return [torch.randn(40, 120), torch.randn(40, 120)]


def get_init_inputs():
    return []
