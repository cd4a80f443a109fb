"""Rows of three dimensions found by stride(-2) alone: x.transpose(0, 1) and x[:, :5] are read at
the wrong places.

problem: row_stride_taken_for_all
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, step, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    x = tl.load(x_ptr + row * step + c, mask=m, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + c, e / tl.sum(e, axis=0), mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        b, t, n = x.shape
        if x.stride(-1) != 1 or x.stride(0) == 0 or x.stride(1) == 0:
            x = x.contiguous()
        y = torch.empty((b, t, n), dtype=x.dtype, device=x.device)
        k[(b * t,)](x, y, x.stride(1), n, BLOCK=triton.next_power_of_2(n))
        return y
