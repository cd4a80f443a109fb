"""The stem of a residual network: convolution, batch norm, ReLU, max pooling."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """maxpool3x3(relu(norm(conv7x7(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.relu(self.norm(self.conv(x))), 3, stride=2, padding=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 3, 224, 224)]


def get_init_inputs() -> list[object]:
    return [64]
