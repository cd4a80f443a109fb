"""Key points from heat maps: convolution, softmax over the pixels, expected place."""

import torch
from torch import nn


class Model(nn.Module):
    """sum of softmax(conv1x1(x)) times the pixel's coordinates."""

    def __init__(self, channels: int, points: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, points, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.conv(x)
        heat = torch.softmax(maps.flatten(2), dim=-1).view_as(maps)
        across = torch.linspace(-1.0, 1.0, maps.shape[3], device=x.device)
        down = torch.linspace(-1.0, 1.0, maps.shape[2], device=x.device)
        return torch.stack(((heat.sum(2) * across).sum(-1), (heat.sum(3) * down).sum(-1)), dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 128, 64, 48)]


def get_init_inputs() -> list[object]:
    return [128, 17]
