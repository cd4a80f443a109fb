"""Attention as two products and a softmax between them."""

import math

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        return torch.matmul(torch.softmax(scores, dim=-1), v)


def get_inputs():
    return [torch.randn(2, 2, 24, 16) for _ in range(3)]
