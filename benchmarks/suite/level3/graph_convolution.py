"""A layer of a graph network: messages along edges, summed, normalised by degree."""

import torch
from torch import nn


class Model(nn.Module):
    """relu(W1 x_i + W2 mean over the neighbours of x_j)."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Linear(features, outputs)
        self.other = nn.Linear(features, outputs, bias=False)

    def forward(
        self, x: torch.Tensor, source: torch.Tensor, destination: torch.Tensor
    ) -> torch.Tensor:
        messages = x.index_select(0, source)
        total = torch.zeros_like(x).index_add(0, destination, messages)
        ones = torch.ones_like(messages[:, :1])
        degree = torch.zeros_like(x[:, :1]).index_add(0, destination, ones)
        return torch.relu(self.own(x) + self.other(total / degree.clamp(min=1.0)))


def get_inputs() -> list[torch.Tensor]:
    edges = [torch.randint(0, 20000, (320000,)) for _ in range(2)]
    return [torch.randn(20000, 128), *edges]


def get_init_inputs() -> list[object]:
    return [128, 256]
