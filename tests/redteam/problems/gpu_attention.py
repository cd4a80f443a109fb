"""Attention in fp16 by the library's own fused call."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 8, 1024, 64, dtype=torch.float16) for _ in range(3)]


def get_init_inputs() -> list[object]:
    return []
