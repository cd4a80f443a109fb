"""Partial sums added to zeroed columns by relaxed atomics; the zeroes come from a kernel too.

problem: h_g_column_sum
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def zero_kernel(y_ptr, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + c, 0.0, mask=c < cols)


@triton.jit
def add_kernel(x_ptr, y_ptr, rows, cols, BR: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    r = tl.program_id(1) * BR + tl.arange(0, BR)
    inside = (r < rows)[:, None] & (c < cols)[None, :]
    x = tl.load(x_ptr + r[:, None].to(tl.int64) * cols + c[None, :], mask=inside, other=0.0)
    tl.atomic_add(y_ptr + c, tl.sum(x, axis=0), mask=c < cols, sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty(cols, dtype=x.dtype, device=x.device)
        zero_kernel[(triton.cdiv(cols, 1024),)](y, cols, BLOCK=1024)
        grid = (triton.cdiv(cols, 64), triton.cdiv(rows, 128))
        add_kernel[grid](x, y, rows, cols, BR=128, BC=64, num_warps=8)
        return y
