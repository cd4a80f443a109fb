"""Dropout, of which the constructor is given the share."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.drop = nn.Dropout(share)

    def forward(self, x):
        return self.drop(x)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return [0.25]
