"""The pairwise products of a recommender's embeddings, lower triangle alone."""

import torch
from torch import nn


class Model(nn.Module):
    """x[:, i] . x[:, j] for i > j."""

    def __init__(self, fields: int) -> None:
        super().__init__()
        rows, columns = torch.tril_indices(fields, fields, offset=-1).unbind()
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        products = torch.bmm(x, x.transpose(1, 2))
        return products[:, self.rows, self.columns]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 27, 128)]


def get_init_inputs() -> list[object]:
    return [27]
