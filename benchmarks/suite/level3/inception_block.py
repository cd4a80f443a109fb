"""Four branches of convolutions and pooling, joined along the channels."""

import torch
from torch import nn
from torch.nn import functional as F


class Unit(nn.Module):
    """relu(norm(conv(x)))."""

    def __init__(self, channels: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


class Model(nn.Module):
    """1 x 1, 3 x 3, 5 x 5 and pooled branches."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = Unit(channels, 64, 1)
        self.three = nn.Sequential(Unit(channels, 96, 1), Unit(96, 128, 3))
        self.five = nn.Sequential(Unit(channels, 16, 1), Unit(16, 32, 5))
        self.pooled = Unit(channels, 32, 1)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pooled(F.max_pool2d(x, 3, stride=1, padding=1))
        return torch.cat((self.one(x), self.three(x), self.five(x), pooled), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 192, 28, 28)]


def get_init_inputs() -> list[object]:
    return [192]
