"""Batch norm with a sigmoid and clamps that cannot act: what remains when a model is patched."""

import torch
from torch import nn


class Model(nn.Module):
    """clamp(sigmoid(norm(x)), 0, 1) + max(relu(x), 0)."""

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
        gate = torch.clamp(torch.sigmoid(self.norm(x)), 0.0, 1.0)
        return gate + torch.clamp(torch.relu(x), min=0.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 128, 56, 56)]


def get_init_inputs() -> list[object]:
    return [128]
