"""Scaled dot product attention of 64 x 32 heads of 2048 x 128 in bf16, 1.1 GB a tensor."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    """torch's own attention, causal."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 32, 2048, 128, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
