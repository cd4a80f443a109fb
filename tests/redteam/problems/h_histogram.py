"""How often does each of 16 values occur?"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.register_buffer("values", torch.arange(bins))

    def forward(self, x):
        return (x.reshape(-1)[:, None] == self.values[None, :]).sum(dim=0)


def get_inputs():
    return [torch.randint(0, 16, (30, 40))]


def get_init_inputs():
    return [16]
