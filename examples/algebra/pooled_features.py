"""Block averages of 512 feature maps, normalised for each channel: images of 256 x 256 in fp32.

avg_w (W x + b) = W avg_w(x) + b: the pooling of 8 channels comes first, not that of 512; and an
instance norm takes the mean off, so that the bias b cancels.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """y = instance_norm(avg_pool(conv_1x1(x))), [B, out_channels, H / window, W / window]."""

    def __init__(self, in_channels: int, out_channels: int, window: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(in_channels, out_channels, 1)
        self.window = window
        self.norm = nn.InstanceNorm2d(out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(F.avg_pool2d(self.expand(x), self.window))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 8, 256, 256)]


def get_init_inputs() -> list[object]:
    return [8, 512, 32]
