"""SwiGLU gate: one half of a projection's output gates the other."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """(gate, up) = halves of x along the last dimension; y = silu(gate) * up."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 16384)]


def get_init_inputs() -> list[object]:
    return []
