"""A network over point clouds: shared layers, maximum over the points, classifier."""

import itertools

import torch
from torch import nn


class Model(nn.Module):
    """classifier(max over the points of mlp(x))."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        sizes = (3, 64, 128, 1024)
        pairs = list(itertools.pairwise(sizes))
        self.layers = nn.ModuleList(nn.Conv1d(a, b, 1, bias=False) for a, b in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for _, b in pairs)
        self.hidden = nn.Linear(1024, 256)
        self.head = nn.Linear(256, classes)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm1d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = torch.relu(norm(layer(x)))
        return self.head(torch.relu(self.hidden(x.amax(dim=-1))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 3, 2048)]


def get_init_inputs() -> list[object]:
    return [40]
