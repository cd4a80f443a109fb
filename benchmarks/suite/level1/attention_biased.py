"""Attention with an additive bias a head, fp16: relative positions."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """scaled dot product attention with a bias on the scores."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def get_inputs() -> list[torch.Tensor]:
    q, k, v = (torch.randn(8, 12, 577, 64, dtype=torch.float16) for _ in range(3))
    return [q, k, v, torch.randn(1, 12, 577, 577, dtype=torch.float16)]


def get_init_inputs() -> list[object]:
    return []
