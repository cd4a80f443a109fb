"""Patches of a picture as tokens: strided convolution, flatten, class token, positions."""

import torch
from torch import nn


class Model(nn.Module):
    """[class token, conv16x16(x) as tokens] + positions."""

    def __init__(self, features: int, patches: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, features, 16, stride=16)
        self.start = nn.Parameter(torch.randn(1, 1, features))
        self.position = nn.Parameter(torch.randn(1, patches + 1, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.conv(x).flatten(2).transpose(1, 2)
        start = self.start.expand(x.shape[0], -1, -1)
        return torch.cat((start, tokens), dim=1) + self.position


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 3, 224, 224)]


def get_init_inputs() -> list[object]:
    return [768, 196]
