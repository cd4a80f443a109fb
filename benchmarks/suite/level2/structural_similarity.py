"""Structural similarity of pictures with an average window."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """mean SSIM of x and y over 7 x 7 windows."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mx, my = F.avg_pool2d(x, 7, 1), F.avg_pool2d(y, 7, 1)
        vx = F.avg_pool2d(x * x, 7, 1) - mx * mx
        vy = F.avg_pool2d(y * y, 7, 1) - my * my
        both = F.avg_pool2d(x * y, 7, 1) - mx * my
        top = (2 * mx * my + 0.01) * (2 * both + 0.03)
        return (top / ((mx * mx + my * my + 0.01) * (vx + vy + 0.03))).mean()


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(16, 3, 256, 250), torch.rand(16, 3, 256, 250)]


def get_init_inputs() -> list[object]:
    return []
