"""SiLU on images of 16 MB."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 64, 64, 64)]


def get_init_inputs() -> list[object]:
    return []
