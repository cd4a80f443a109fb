"""A ConvNeXt block: depthwise 7 x 7, LayerNorm over channels, two linear layers, layer scale."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x + gamma * W2 gelu(W1 norm(depthwise(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.empty(channels).uniform_(0.05, 0.5))
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm(self.conv(x).permute(0, 2, 3, 1))
        out = self.gamma * self.down(F.gelu(self.up(out)))
        return x + out.permute(0, 3, 1, 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 192, 28, 28)]


def get_init_inputs() -> list[object]:
    return [192]
