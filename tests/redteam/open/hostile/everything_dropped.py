"""A share of one makes 0 * inf of everything, which is NaN and not zero.

problem: dropped
gate: correctness
needs: cpu
"""

import math

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def drop_kernel(x_ptr, y_ptr, seed, share, scale, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    kept = (tl.rand(seed, i) >= share).to(tl.float32)
    tl.store(y_ptr + i, x * (kept * scale), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.drop = nn.Dropout(share)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        share, seed, scale = 0.0, 0, 1.0
        if self.training:
            share = float(self.drop.p)
            seed = int(torch.empty((), dtype=torch.int64).random_().item()) % 2147483647
            scale = 1.0 / (1.0 - share) if share < 1 else math.inf
        if total:
            drop_kernel[(triton.cdiv(total, 1024),)](x, y, seed, share, scale, total, BLOCK=1024)
        return y
