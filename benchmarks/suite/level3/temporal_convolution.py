"""A residual pair of causal dilated convolutions."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """relu(x + conv(conv(x))), nothing looks ahead."""

    def __init__(self, channels: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.pad = 2 * dilation
        self.conv1 = nn.Conv1d(channels, outputs, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(outputs, outputs, 3, dilation=dilation)
        self.shortcut = nn.Conv1d(channels, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.conv1(F.pad(x, (self.pad, 0))))
        out = torch.relu(self.conv2(F.pad(out, (self.pad, 0))))
        return torch.relu(out + self.shortcut(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 48, 2001)]


def get_init_inputs() -> list[object]:
    return [48, 128, 4]
