"""Queries, keys and values of 32 + 8 + 8 heads of 128, the first two rotated, bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """W x in three parts, split into heads, queries and keys turned by their places."""

    def __init__(self, features: int, heads: int, groups: int, size: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, size
        width = (heads + 2 * groups) * size
        self.project = nn.Linear(features, width, bias=False, dtype=torch.bfloat16)

    def turn(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Rotary embedding in half-rotated form."""
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, tokens, _ = x.shape
        joined = self.project(x).view(batch, tokens, self.heads + 2 * self.groups, self.size)
        q, k, v = joined.transpose(1, 2).split([self.heads, self.groups, self.groups], dim=1)
        return self.turn(q, cos, sin), self.turn(k, cos, sin), v


def get_inputs() -> list[torch.Tensor]:
    x = torch.randn(1, 4096, 4096, dtype=torch.bfloat16)
    return [x, *(torch.randn(4096, 128, dtype=torch.bfloat16) for _ in range(2))]


def get_init_inputs() -> list[object]:
    return [4096, 32, 8, 128]
