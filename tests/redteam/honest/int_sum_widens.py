"""Widens to 64 bits before it adds, as PyTorch does.

problem: h_int_sum
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def int_sum_kernel(x_ptr, y_ptr, rows, cols, BR: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), dtype=tl.int64)
    for start in range(0, rows, BR):
        r = start + tl.arange(0, BR)
        inside = (r < rows)[:, None] & (c < cols)[None, :]
        x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=inside, other=0)
        total += tl.sum(x.to(tl.int64), axis=0)
    tl.store(y_ptr + c, total, mask=c < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty((1, cols), dtype=torch.int64, device=x.device)
        int_sum_kernel[(triton.cdiv(cols, 32),)](x, y, rows, cols, BR=64, BC=32)
        return y
