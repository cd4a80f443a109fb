"""Mean over the tokens, which lie in the middle."""

import torch
from torch import nn


class Model(nn.Module):
    """mean over dimension 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(96, 1025, 768)]


def get_init_inputs() -> list[object]:
    return []
