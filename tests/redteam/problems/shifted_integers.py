"""Integers of 64 bits and a number that the caller adds."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, offset):
        return x + offset


def get_inputs():
    return [torch.randint(0, 1000, (32, 64)), 7]


def get_init_inputs():
    return []
