"""LayerNorm whose gain and shift come from a condition: diffusion transformers."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """layer_norm(x) * (1 + scale) + shift, (scale, shift) = W silu(c)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features
        self.linear = nn.Linear(features, 2 * features)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        scale, shift = self.linear(F.silu(condition)).chunk(2, dim=-1)
        normed = F.layer_norm(x, (self.features,))
        return normed * (1 + scale[:, None]) + shift[:, None]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 1024, 1152), torch.randn(32, 1152)]


def get_init_inputs() -> list[object]:
    return [1152]
