"""A pyramid's lateral step: 1 x 1 convolution, Mish, the coarser map upsampled and added."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """mish(conv1x1(fine)) + upsample(coarse)."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, 1)

    def forward(self, fine: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
        up = F.interpolate(coarse, size=fine.shape[2:], mode="bilinear", align_corners=False)
        return F.mish(self.conv(fine)) + up


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 256, 72, 72), torch.randn(16, 128, 36, 36)]


def get_init_inputs() -> list[object]:
    return [256, 128]
