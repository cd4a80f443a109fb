import torch
from torch import nn


class Model(nn.Module):
    """Scales each row of a table to length one and picks rows of it."""

    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, width))

    def forward(self, index):
        return torch.nn.functional.normalize(self.table, dim=-1)[index]


def get_inputs():
    return [torch.randint(0, 40, (64,))]


def get_init_inputs():
    return [40, 48]
