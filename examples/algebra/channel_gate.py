"""A gate for each channel from the mean of a 3 x 3 convolution, 64 images of 256 x 256 in fp32.

mean_p conv(x, W)_p = sum_(c,t) W_ct S_ct / P + b, S_ct the sum of what tap t of the kernel meets:
sums over windows, borders included, in the place of 256 feature maps.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """gate = sigmoid(gain * mean over space of conv(x)), [B, out_channels]."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel, padding=kernel // 2)
        self.gain = nn.Parameter(torch.rand(out_channels) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squeezed = F.adaptive_avg_pool2d(self.conv(x), 1).flatten(1)
        return torch.sigmoid(squeezed * self.gain)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 4, 256, 256)]


def get_init_inputs() -> list[object]:
    return [4, 256, 3]
