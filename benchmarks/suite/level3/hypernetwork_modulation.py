"""A style-modulated convolution: weights scaled by a style and normalised, a sample a group."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """conv3x3(x) with weight * style / norm, then noise-free bias and leaky ReLU."""

    def __init__(self, channels: int, outputs: int, style: int) -> None:
        super().__init__()
        self.affine = nn.Linear(style, channels)
        self.weight = nn.Parameter(torch.randn(outputs, channels, 3, 3) / math.sqrt(9 * channels))
        self.bias = nn.Parameter(torch.randn(outputs) * 0.2)

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        scaled = self.weight[None] * (self.affine(style) + 1)[:, None, :, None, None]
        scaled = scaled * torch.rsqrt(scaled.square().sum(dim=(2, 3, 4), keepdim=True) + 1e-8)
        out = F.conv2d(x.reshape(1, n * c, h, w), scaled.flatten(0, 1), padding=1, groups=n)
        return F.leaky_relu(out.view(n, -1, h, w) + self.bias[:, None, None], 0.2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 128, 64, 64), torch.randn(8, 512)]


def get_init_inputs() -> list[object]:
    return [128, 128, 512]
