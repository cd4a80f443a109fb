"""PReLU with a slope a channel."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x where positive, else slope[channel] * x."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.empty(channels).uniform_(0.05, 0.4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.prelu(x, self.slope)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 96, 113, 113)]


def get_init_inputs() -> list[object]:
    return [96]
