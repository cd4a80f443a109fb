"""Vector quantisation: distances to the codes, argmin, lookup."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """the code nearest to each vector, and its index."""

    def __init__(self, codes: int, features: int) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(codes, features))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        squares = x.square().sum(-1, keepdim=True) + self.codes.square().sum(-1)
        index = torch.argmin(squares - 2 * x @ self.codes.t(), dim=-1)
        return F.embedding(index, self.codes), index


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32768, 64)]


def get_init_inputs() -> list[object]:
    return [1024, 64]
