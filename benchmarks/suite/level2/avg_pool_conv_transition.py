"""The step between two dense blocks: norm, ReLU, 1 x 1 convolution, average pooling."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """avg_pool(conv1x1(relu(norm(x))), 2)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels // 2, 1, bias=False)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(self.conv(torch.relu(self.norm(x))), 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 256, 28, 28)]


def get_init_inputs() -> list[object]:
    return [256]
