"""Instance norm with learned gains, as style transfer uses it."""

import torch
from torch import nn


class Model(nn.Module):
    """each map of each sample to mean 0 and variance 1, then gain and shift."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(12, 128, 130, 130)]


def get_init_inputs() -> list[object]:
    return [128]
