import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim=1024, heads=16, kv_heads=4):
        super().__init__()
        self.h, self.kv, self.d = heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.d, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.d, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, mask=None):
        B, S, _ = x.shape
        q = self.wq(x).view(B, S, self.h, self.d).transpose(1, 2)
        k = self.wk(x).view(B, S, self.kv, self.d).transpose(1, 2)
        v = self.wv(x).view(B, S, self.kv, self.d).transpose(1, 2)
        k = k.repeat_interleave(self.h // self.kv, dim=1)
        v = v.repeat_interleave(self.h // self.kv, dim=1)
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        if mask is not None:
            s = s.masked_fill(mask == 0, float("-inf"))
        p = s.float().softmax(-1).to(q.dtype)
        return self.wo((p @ v).transpose(1, 2).reshape(B, S, -1))


def get_inputs():
    S = 512
    return [torch.randn(2, S, 1024), torch.tril(torch.ones(1, 1, S, S))]


def get_init_inputs():
    return []
