"""Softmax that gives zeros for a row of -inf, where torch gives NaN: such a row (all keys masked)
is never drawn.

problem: rows_of_minus_infinity
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    x = tl.load(x_ptr + row * n + c, mask=m, other=float("-inf"))
    top = tl.max(x, axis=0)
    nan = tl.max((x != x).to(tl.int32), axis=0) > 0
    none = (top == float("-inf")) & (nan == 0)
    e = tl.exp(x - tl.where(none, 0.0, top))
    e = tl.where(nan, float("nan"), e)
    s = tl.sum(e, axis=0)
    tl.store(y_ptr + row * n + c, e / tl.where(none, 1.0, s), mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        k[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
