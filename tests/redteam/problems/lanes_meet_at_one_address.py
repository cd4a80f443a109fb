"""The last place of each row with a positive number; 0 where there is none."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        places = torch.arange(x.shape[-1], device=x.device)
        return torch.where(x > 0, places, 0).amax(dim=-1)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
