"""Reads rows and columns by their steps, whatever these are.

problem: relu
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, row_step, column_step, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_step + c * column_step, mask=c < n)
    tl.store(y_ptr + row * n + c, tl.where(x < 0, 0.0, x), mask=c < n)


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() != 2:
            raise ValueError("two dimensions")
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        rows, n = x.shape
        if y.numel():
            block = triton.next_power_of_2(n)
            relu_kernel[(rows,)](x, y, n, x.stride(0), x.stride(1), BLOCK=block)
        return y
