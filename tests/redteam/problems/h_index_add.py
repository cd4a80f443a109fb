"""Messages summed into the rows that they are for."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, message, index):
        out = torch.zeros(self.rows, message.shape[1], dtype=message.dtype, device=message.device)
        return out.index_add(0, index, message)


def get_inputs():
    return [torch.randn(70, 24), torch.randint(0, 19, (70,))]


def get_init_inputs():
    return [19]
