"""Linear layer, 1024 x 1024 x 1024 in fp32."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1024, 1024)]


def get_init_inputs() -> list[object]:
    return [1024]
