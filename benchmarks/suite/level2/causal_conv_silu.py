"""The short causal convolution in front of a state-space scan."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """silu(depthwise causal conv1d(x)) on (batch, tokens, channels)."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv1d(channels, channels, kernel, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x.transpose(1, 2), (self.kernel - 1, 0))
        return F.silu(self.conv(padded)).transpose(1, 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 2048, 1536)]


def get_init_inputs() -> list[object]:
    return [1536, 4]
