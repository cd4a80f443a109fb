"""32768 x 32 times 32 x 32768: 4.3 GB out of 8 MB in."""

import torch
from torch import nn


class Model(nn.Module):
    """A product of small depth."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32768, 32), torch.randn(32, 32768)]


def get_init_inputs() -> list[object]:
    return []
