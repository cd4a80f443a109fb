"""Sums of table rows, a bag of 40 each: the sparse half of a recommender."""

import torch
from torch import nn


class Model(nn.Module):
    """sum over the bag of table[ids]."""

    def __init__(self, rows: int, features: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(rows, features, mode="sum")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, 200000, (32768, 40))]


def get_init_inputs() -> list[object]:
    return [200000, 128]
