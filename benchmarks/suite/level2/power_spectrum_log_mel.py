"""Log-mel features from a spectrum: power, projection, floor, logarithm, mean removed."""

import torch
from torch import nn


class Model(nn.Module):
    """log(max(filters |x|^2, 1e-6)) minus its mean over time."""

    def __init__(self, bins: int, bands: int) -> None:
        super().__init__()
        self.register_buffer("filters", torch.rand(bands, bins) / bins)

    def forward(self, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
        power = real.square() + imaginary.square()
        mel = torch.log(torch.clamp(self.filters @ power, min=1e-6))
        return mel - mel.mean(dim=-1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 513, 1500), torch.randn(32, 513, 1500)]


def get_init_inputs() -> list[object]:
    return [513, 80]
