"""Adds into scratch that only the constructor cleared: the second call counts twice.

problem: row_sum
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, sums_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
        tl.atomic_add(sums_ptr + row, tl.sum(x, axis=0))
    tl.store(y_ptr + row, tl.load(sums_ptr + row))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = {}

    def forward(self, x):
        x = x.contiguous()
        m, n = x.shape
        sums = self.scratch.setdefault(m, torch.zeros(m, device=x.device, dtype=x.dtype))
        y = torch.empty(m, device=x.device, dtype=x.dtype)
        add_kernel[(m,)](x, sums, y, n, BLOCK=64)
        return y
