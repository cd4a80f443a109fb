"""A discriminator's layer: strided convolution, instance norm, leaky ReLU."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """leaky_relu(instance_norm(conv4x4(x)), 0.2)."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, 4, stride=2, padding=1)
        self.norm = nn.InstanceNorm2d(outputs, affine=True)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(self.norm(self.conv(x)), 0.2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 64, 128, 128)]


def get_init_inputs() -> list[object]:
    return [64, 128]
