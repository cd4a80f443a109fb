"""A coordinate network: six small layers with sine activations over many points."""

import itertools

import torch
from torch import nn


class Model(nn.Module):
    """Colours of points: sin(30 (W x + b)) six times, then linear."""

    def __init__(self, hidden: int, depth: int) -> None:
        super().__init__()
        sizes = [2] + [hidden] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.last = nn.Linear(hidden, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sin(3.0 * layer(x))
        return self.last(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(262144, 2)]


def get_init_inputs() -> list[object]:
    return [64, 6]
