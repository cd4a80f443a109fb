import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v, keep):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=keep)


def get_inputs():
    keep = torch.rand(2, 1, 24, 40) > 0.5
    return [torch.randn(2, 3, 24, 32), torch.randn(2, 3, 40, 32), torch.randn(2, 3, 40, 32), keep]


def get_init_inputs():
    return []
