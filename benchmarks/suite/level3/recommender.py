"""A deep recommender: embedding bags, dense layers, pairwise interactions, click probability."""

import torch
from torch import nn


class Model(nn.Module):
    """sigmoid(mlp([dense, products of all pairs]))."""

    def __init__(self, rows: int, features: int, tables: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, features, mode="sum") for _ in range(tables)
        )
        self.dense1 = nn.Linear(13, 256)
        self.dense2 = nn.Linear(256, features)
        pairs = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("rows", pairs[0])
        self.register_buffer("columns", pairs[1])
        self.top = nn.Linear(features + pairs.shape[1], 256)
        self.head = nn.Linear(256, 1)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        base = torch.relu(self.dense2(torch.relu(self.dense1(dense))))
        bags = [table(ids[:, i]) for i, table in enumerate(self.tables)]
        x = torch.stack([base, *bags], dim=1)
        products = torch.bmm(x, x.transpose(1, 2))[:, self.rows, self.columns]
        return torch.sigmoid(self.head(torch.relu(self.top(torch.cat((base, products), dim=1)))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 13), torch.randint(0, 50000, (8192, 8, 4))]


def get_init_inputs() -> list[object]:
    return [50000, 64, 8]
