"""Three feature maps joined along the channels."""

import torch
from torch import nn


class Model(nn.Module):
    """cat along dimension 1."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.cat((a, b, c), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, channels, 56, 57) for channels in (64, 96, 130)]


def get_init_inputs() -> list[object]:
    return []
