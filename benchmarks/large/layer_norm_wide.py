"""LayerNorm over the last three of 32 x 64 x 512 x 512, 2.1 GB."""

import torch
from torch import nn


class Model(nn.Module):
    """LayerNorm over channels and both sides."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 64, 512, 512)]


def get_init_inputs() -> list[object]:
    return [(64, 512, 512)]
