"""Two tensors of 3.2 GB each, one gating the other."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """silu(a) * b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.silu(a) * b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2048, 393216), torch.randn(2048, 393216)]


def get_init_inputs() -> list[object]:
    return []
