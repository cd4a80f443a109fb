"""Rows of a large table, bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """table[ids]."""

    def __init__(self, rows: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, features, dtype=torch.bfloat16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, 50257, (16, 2048))]


def get_init_inputs() -> list[object]:
    return [50257, 1024]
