"""Eight tokens through a wide layer, fp16: the weight is all that is read."""

import torch
from torch import nn


class Model(nn.Module):
    """x weight^T for x of (8, 8192)."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs, bias=False, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 8192, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [8192, 28672]
