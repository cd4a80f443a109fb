"""A linear layer whose sizes are all odd, fp32."""

import torch
from torch import nn


class Model(nn.Module):
    """x weight^T + bias."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4097, 1023)]


def get_init_inputs() -> list[object]:
    return [1023, 2049]
