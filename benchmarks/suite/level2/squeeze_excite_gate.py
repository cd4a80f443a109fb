"""Channel attention: mean, two small layers, sigmoid, product."""

import torch
from torch import nn


class Model(nn.Module):
    """x * sigmoid(W2 relu(W1 mean(x)))."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.down = nn.Linear(channels, squeezed)
        self.up = nn.Linear(squeezed, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.up(torch.relu(self.down(x.mean(dim=(2, 3))))))
        return x * gate[:, :, None, None]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 240, 56, 56)]


def get_init_inputs() -> list[object]:
    return [240, 60]
