"""Mean of the squares of 16 MB, one number."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * x).mean()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 1024)]


def get_init_inputs() -> list[object]:
    return []
