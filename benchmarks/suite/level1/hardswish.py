"""Hard swish of a mobile network, bf16, channels that are no power of two."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """x * relu6(x + 3) / 6."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.hardswish(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 72, 112, 112, dtype=torch.bfloat16)]


def get_init_inputs() -> list[object]:
    return []
