"""RMSNorm alone in bfloat16, written out in fp32 as model code does it."""

import torch
from torch import nn


class Model(nn.Module):
    """y = weight * x / sqrt(mean(x^2) + eps), the statistics in fp32."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (wide * scale).to(x.dtype)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8192, 8192, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [8192]
