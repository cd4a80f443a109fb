"""A contraction over the innermost of four dimensions."""

import torch
from torch import nn


class Model(nn.Module):
    """out[b, i, j, k] = sum over l of x[b, i, j, l] w[l, k]."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bijl,lk->bijk", x, w)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 128, 256, 192), torch.randn(192, 320)]


def get_init_inputs() -> list[object]:
    return []
