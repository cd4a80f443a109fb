"""Shift by a product of a sample's scale and a channel's gain, both broadcast."""

import torch
from torch import nn


class Model(nn.Module):
    """x + 0.5 * scale * gain for x of (batch, tokens, channels)."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(x, scale, gain, value=0.5)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 577, 1024), torch.randn(64, 1, 1024), torch.randn(1024)]


def get_init_inputs() -> list[object]:
    return []
