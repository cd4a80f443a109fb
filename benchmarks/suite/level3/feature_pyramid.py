"""A feature pyramid over three maps: lateral convolutions, upsampling, smoothing."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Three smoothed maps of equal width."""

    def __init__(self, sizes: list[int], width: int) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(size, width, 1) for size in sizes)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in sizes)

    def forward(
        self, fine: torch.Tensor, middle: torch.Tensor, coarse: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        top = self.lateral[2](coarse)
        centre = self.lateral[1](middle) + F.interpolate(top, scale_factor=2.0, mode="nearest")
        low = self.lateral[0](fine) + F.interpolate(centre, scale_factor=2.0, mode="nearest")
        return tuple(conv(x) for conv, x in zip(self.smooth, (low, centre, top), strict=True))


def get_inputs() -> list[torch.Tensor]:
    shapes = ((8, 128, 64, 64), (8, 256, 32, 32), (8, 512, 16, 16))
    return [torch.randn(shape) for shape in shapes]


def get_init_inputs() -> list[object]:
    return [[128, 256, 512], 128]
