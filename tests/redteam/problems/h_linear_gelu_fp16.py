"""Linear and GELU in half precision."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.fc = nn.Linear(inner, outer, dtype=torch.float16)

    def forward(self, x):
        return F.gelu(self.fc(x))


def get_inputs():
    return [torch.randn(50, 80, dtype=torch.float16)]


def get_init_inputs():
    return [80, 72]
