"""Batch norm at inference on video features."""

import torch
from torch import nn


class Model(nn.Module):
    """the running statistics as a scale and a shift a channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm3d(channels)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm3d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 64, 16, 56, 56)]


def get_init_inputs() -> list[object]:
    return [64]
