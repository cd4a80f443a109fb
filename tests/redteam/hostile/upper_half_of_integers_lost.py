"""Moves 64-bit integers as 32 bits.

problem: roll_int
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def roll_kernel(x_ptr, y_ptr, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    source = (i // n) * n + (i % n + 1) % n
    x = tl.load(x_ptr + source, mask=mask, other=0).to(tl.int32)
    tl.store(y_ptr + i, x.to(tl.int64), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total, n = x.numel(), x.shape[-1]
        if total:
            roll_kernel[(triton.cdiv(total, 1024),)](x, y, total, n, BLOCK=1024)
        return y
