"""Group norm, SiLU and convolution: half of a diffusion model's block, bf16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """conv3x3(silu(group_norm(x)))."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.conv = nn.Conv2d(channels, outputs, 3, padding=1)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)
        self.to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.silu(self.norm(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 320, 64, 64, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return [320, 320]
