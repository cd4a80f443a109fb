"""Four layers of a dense block, each reading all before it."""

import torch
from torch import nn


class Layer(nn.Module):
    """conv3x3(relu(norm(conv1x1(relu(norm(x))))))."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv1(torch.relu(self.norm1(x)))
        return self.conv2(torch.relu(self.norm2(x)))


class Model(nn.Module):
    """x and the outputs of all layers, joined along the channels."""

    def __init__(self, channels: int, growth: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(channels + i * growth, growth) for i in range(depth))
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat((x, layer(x)), dim=1)
        return x


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 64, 56, 56)]


def get_init_inputs() -> list[object]:
    return [64, 32, 4]
