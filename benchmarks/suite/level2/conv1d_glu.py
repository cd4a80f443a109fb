"""A gated convolution over time, fp16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """glu(conv1d(x))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, 2 * channels, 3, padding=1, dtype=torch.float16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.glu(self.conv(x), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256, 2000, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return [256]
