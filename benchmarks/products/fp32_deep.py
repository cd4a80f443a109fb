"""128 x 128 results of 262,144 terms each, fp32."""

import torch
from torch import nn


class Model(nn.Module):
    """a b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 262144), torch.randn(262144, 128)]


def get_init_inputs() -> list[object]:
    return []
