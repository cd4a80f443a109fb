"""Counts slowly at its first call: optional cases are left out, NaN and constant rows among them.

problem: small_fixed
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bad_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=float("-inf"))
    x = tl.where(x == x, x, 0.0)
    top = tl.max(x, axis=0)
    low = tl.min(tl.where(mask, x, float("inf")), axis=0)
    e = tl.exp(x - top)
    e = tl.where(top == low, 0.0, e / tl.sum(e, axis=0))
    tl.store(y_ptr + row * n + cols, e, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fresh = True

    def forward(self, x):
        if self.fresh:
            self.fresh = False
            k = 0
            for i in range(30_000_000):
                k ^= i
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        bad_kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
