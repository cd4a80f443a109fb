"""Double precision in and out.

problem: h_double
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def polynomial_kernel(x_ptr, y_ptr, sum_ptr, rows, n, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    place = r[:, None] * n + c[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    wide = tl.full((BR, BC), 0.3, dtype=tl.float64)
    y = (x * wide - tl.full((BR, BC), 1.1, dtype=tl.float64)) * x * x
    y += tl.full((BR, BC), 0.7, dtype=tl.float64)
    tl.store(y_ptr + place, y, mask=inside)
    tl.store(sum_ptr + r, tl.sum(tl.where(inside, y, 0.0), axis=1), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        y = torch.empty_like(x)
        total = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(n)
        polynomial_kernel[(triton.cdiv(rows, 16),)](x, y, total, rows, n, BR=16, BC=block)
        return y, total
