"""Leaves partial sums in a buffer that a second kernel adds up.

problem: h_row_sum
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def partial_kernel(x_ptr, part_ptr, rows, n, parts, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    part = tl.program_id(1)
    c = part * BC + tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    x = tl.load(x_ptr + r[:, None] * n + c[None, :], mask=inside, other=0.0)
    tl.store(part_ptr + r * parts + part, tl.sum(x, axis=1), mask=r < rows)


@triton.jit
def finish_kernel(part_ptr, y_ptr, rows, parts, BR: tl.constexpr, BP: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    p = tl.arange(0, BP)
    inside = (r < rows)[:, None] & (p < parts)[None, :]
    value = tl.load(part_ptr + r[:, None] * parts + p[None, :], mask=inside, other=0.0)
    tl.store(y_ptr + r, tl.sum(value, axis=1), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        parts = triton.cdiv(n, 64)
        partial = torch.empty((rows, parts), dtype=x.dtype, device=x.device)
        y = torch.empty(rows, dtype=x.dtype, device=x.device)
        grid = triton.cdiv(rows, 32)
        partial_kernel[(grid, parts)](x, partial, rows, n, parts, BR=32, BC=64)
        finish_kernel[(grid,)](partial, y, rows, parts, BR=32, BP=triton.next_power_of_2(parts))
        return y
