"""Two poolings and a norm in a row, as a detector's pyramid has them."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """norm(max_pool(max_pool(x)))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        for item in self.modules():
            if isinstance(item, nn.BatchNorm2d):
                nn.init.uniform_(item.weight, 0.5, 1.5)
                nn.init.normal_(item.bias, std=0.2)
                nn.init.normal_(item.running_mean, std=0.2)
                nn.init.uniform_(item.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(F.max_pool2d(F.max_pool2d(x, 3, stride=2), 3, stride=2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 96, 113, 113)]


def get_init_inputs() -> list[object]:
    return [96]
