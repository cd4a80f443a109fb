"""Linear layer in fp16 with a long inner dimension."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, outer, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(512, 4096, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [4096, 1024]
