"""The head of a video network: convolution, norm, ReLU, mean over time and place."""

import torch
from torch import nn


class Model(nn.Module):
    """mean(relu(norm(conv3x3x3(x))))."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm3d(outputs)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm3d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x))).mean(dim=(2, 3, 4))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 64, 8, 28, 28)]


def get_init_inputs() -> list[object]:
    return [64, 128]
