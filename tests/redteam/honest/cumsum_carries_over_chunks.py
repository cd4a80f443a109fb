"""Scans a chunk, then carries its last sum into the next one.

problem: h_cumsum
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, rows, n, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    carry = tl.zeros((BR,), dtype=tl.float64)
    for start in range(0, n, BC):
        c = start + tl.arange(0, BC)
        inside = (r < rows)[:, None] & (c < n)[None, :]
        place = r[:, None] * n + c[None, :]
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float64)
        y = tl.cumsum(x, axis=1) + carry[:, None]
        tl.store(y_ptr + place, y.to(tl.float32), mask=inside)
        carry += tl.sum(x, axis=1)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        y = torch.empty_like(x)
        cumsum_kernel[(triton.cdiv(rows, 16),)](x, y, rows, n, BR=16, BC=64)
        return y
