"""Causal attention in bfloat16: 2 x 8 heads, 1024 places, 64 features."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(2, 8, 1024, 64, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
