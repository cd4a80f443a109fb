"""Walks down the columns in chunks of rows and keeps the running sum in fp32.

problem: h_column_mean_fp16
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def column_mean_kernel(x_ptr, y_ptr, rows, cols, BR: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, rows, BR):
        r = start + tl.arange(0, BR)
        inside = (r < rows)[:, None] & (c < cols)[None, :]
        x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=inside, other=0.0)
        total += tl.sum(x.to(tl.float32), axis=0)
    tl.store(y_ptr + c, (total / rows).to(tl.float16), mask=c < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty(cols, dtype=x.dtype, device=x.device)
        column_mean_kernel[(triton.cdiv(cols, 32),)](x, y, rows, cols, BR=32, BC=32)
        return y
