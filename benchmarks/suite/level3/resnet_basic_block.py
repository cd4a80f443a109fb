"""A residual block of two 3 x 3 convolutions with a strided shortcut."""

import torch
from torch import nn


class Model(nn.Module):
    """relu(norm(conv(relu(norm(conv(x))))) + norm(conv1x1(x)))."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv3 = nn.Conv2d(channels, outputs, 1, stride=2, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(out + self.norm3(self.conv3(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 64, 56, 56)]


def get_init_inputs() -> list[object]:
    return [64, 128]
