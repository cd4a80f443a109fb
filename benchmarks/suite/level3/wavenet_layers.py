"""Gated dilated convolutions over audio with residual and skip sums."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Three layers of tanh * sigmoid with dilations 1, 2, 4."""

    def __init__(self, channels: int, skips: int, depth: int) -> None:
        super().__init__()
        self.filters = nn.ModuleList(
            nn.Conv1d(channels, 2 * channels, 2, dilation=2**i) for i in range(depth)
        )
        self.residual = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(depth))
        self.skip = nn.ModuleList(nn.Conv1d(channels, skips, 1) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for i, conv in enumerate(self.filters):
            a, b = conv(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            gated = torch.tanh(a) * torch.sigmoid(b)
            total = total + self.skip[i](gated)
            x = x + self.residual[i](gated)
        return torch.relu(total)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 64, 8000)]


def get_init_inputs() -> list[object]:
    return [64, 128, 3]
