"""Queries and keys of two projections, with rotary position embedding of their heads' halves."""

import torch
from torch import nn


def rotated(x, cos, sin):
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Model(nn.Module):
    def __init__(self, features, heads, shared, head):
        super().__init__()
        self.head = head
        self.queries = nn.Linear(features, heads * head, bias=False, dtype=torch.float16)
        self.keys = nn.Linear(features, shared * head, bias=False, dtype=torch.float16)

    def forward(self, x, cos, sin):
        tables = cos[:, None], sin[:, None]
        q, k = (y.unflatten(-1, (-1, self.head)) for y in (self.queries(x), self.keys(x)))
        return rotated(q, *tables), rotated(k, *tables)


def get_inputs():
    angle = torch.rand(33, 16) * 6
    cos, sin = torch.cos(angle).half(), torch.sin(angle).half()
    return [torch.randn(33, 24, dtype=torch.float16), cos, sin]


def get_init_inputs():
    return [24, 3, 2, 16]
