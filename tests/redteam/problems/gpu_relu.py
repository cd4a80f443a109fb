"""ReLU on 16 MB."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4096, 1024)]


def get_init_inputs() -> list[object]:
    return []
