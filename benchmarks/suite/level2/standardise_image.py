"""Bytes to a normalised picture in another layout."""

import torch
from torch import nn


class Model(nn.Module):
    """(x / 255 - mean) / std from (n, h, w, c) uint8 to (n, c, h, w)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.empty(channels).uniform_(0.4, 0.5))
        self.register_buffer("std", torch.empty(channels).uniform_(0.2, 0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = (x.float() / 255.0 - self.mean) / self.std
        return scaled.permute(0, 3, 1, 2).contiguous()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, 256, (128, 256, 256, 3), dtype=torch.uint8)]


def get_init_inputs() -> list[object]:
    return [3]
