"""Smooth L1 loss, summed."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, x, y):
        return F.smooth_l1_loss(x, y, beta=self.beta, reduction="sum")


def get_inputs():
    return [torch.randn(30, 140), torch.randn(30, 140)]


def get_init_inputs():
    return [0.7]
