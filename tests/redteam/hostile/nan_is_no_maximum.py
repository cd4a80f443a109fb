"""Passes over NaN in search of the maximum, which torch names instead.

problem: row_max
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_max_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    tl.store(y_ptr + row, tl.max(x, axis=0))


def row_max(x):
    x = x.contiguous()
    n = x.shape[-1]
    y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
    row_max_kernel[(y.numel(),)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return row_max(x)
