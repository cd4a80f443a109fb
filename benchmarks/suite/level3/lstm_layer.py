"""An LSTM over 48 steps."""

import torch
from torch import nn


class Model(nn.Module):
    """The outputs of a one-layer LSTM."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 48, 256)]


def get_init_inputs() -> list[object]:
    return [256, 512]
