"""Linear 1024 -> 16384 with GELU on 131072 rows of bf16, 4.3 GB out."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """Linear and GELU."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, outer).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(131072, 1024, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [1024, 16384]
