"""A two-level U-Net for segmentation with skip connections."""

import torch
from torch import nn
from torch.nn import functional as F


class Double(nn.Module):
    """Two 3 x 3 convolutions with norm and ReLU."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(x)))


class Model(nn.Module):
    """Down twice, up twice, the maps of each level joined."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.enter = Double(3, width)
        self.down1 = Double(width, 2 * width)
        self.down2 = Double(2 * width, 4 * width)
        self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge1 = Double(4 * width, 2 * width)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge2 = Double(2 * width, width)
        self.leave = nn.Conv2d(width, classes, 1)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = self.enter(x)
        middle = self.down1(F.max_pool2d(top, 2))
        low = self.down2(F.max_pool2d(middle, 2))
        middle = self.merge1(torch.cat((middle, self.up1(low)), dim=1))
        return self.leave(self.merge2(torch.cat((top, self.up2(middle)), dim=1)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 3, 192, 192)]


def get_init_inputs() -> list[object]:
    return [48, 21]
