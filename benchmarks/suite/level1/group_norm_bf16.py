"""Group norm of a diffusion model's features, bf16."""

import torch
from torch import nn


class Model(nn.Module):
    """group_norm with 32 groups of 10 channels."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 320, 64, 64, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [32, 320]
