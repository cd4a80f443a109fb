"""Depthwise and pointwise convolution with a norm and a clipped ReLU after each."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """relu6(norm(conv1x1(relu6(norm(depthwise3x3(x))))))."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.pointwise = nn.Conv2d(channels, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.norm1(self.depthwise(x)))
        return F.relu6(self.norm2(self.pointwise(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 96, 56, 56)]


def get_init_inputs() -> list[object]:
    return [96, 192]
