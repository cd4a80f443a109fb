"""A unit of grouped convolutions with a channel shuffle between them."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """relu(x + grouped(depthwise(shuffle(grouped(x)))))."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        middle = channels // 4
        self.groups = groups
        self.conv1 = nn.Conv2d(channels, middle, 1, groups=groups, bias=False)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, middle, 3, padding=1, groups=middle, bias=False)
        self.norm2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, channels, 1, groups=groups, bias=False)
        self.norm3 = nn.BatchNorm2d(channels)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        out = F.channel_shuffle(out, self.groups)
        out = self.norm3(self.conv3(self.norm2(self.conv2(out))))
        return torch.relu(x + out)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 240, 28, 28)]


def get_init_inputs() -> list[object]:
    return [240, 3]
