"""Causal attention, bf16."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """scaled dot product attention under a lower triangular mask."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 16, 2048, 128, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
