"""A generator's middle layer: transposed convolution, batch norm, ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    """relu(norm(conv_transpose4x4(x)))."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, outputs, 4, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 256, 16, 16)]


def get_init_inputs() -> list[object]:
    return [256, 128]
