"""Sum over the rows of a tall matrix."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 256)]


def get_init_inputs() -> list[object]:
    return []
