"""4096 linear heads of an ensemble, averaged at once: 8192 x 4096 x 4096 in fp32.

sum_j (x W^T + b)_j = x (sum_j W_j) + sum(b): one weight vector in the place of a matrix.
"""

import torch
from torch import nn


class Model(nn.Module):
    """score = sigmoid(sum_j (x @ weight^T + bias)_j / heads / temperature), one score a row."""

    def __init__(self, features: int, heads: int, temperature: float) -> None:
        super().__init__()
        self.heads = nn.Linear(features, heads)
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        votes = self.heads(x)
        mean = votes.sum(dim=1, keepdim=True) / votes.shape[1]
        return torch.sigmoid(mean / self.temperature)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 4096)]


def get_init_inputs() -> list[object]:
    return [4096, 4096, 0.5]
