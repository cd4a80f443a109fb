"""RMSNorm in fp16 at a width that is no power of two."""

import torch
from torch import nn


class Model(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(features, eps=1e-5, dtype=torch.float16)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16384, 3584, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [3584]
