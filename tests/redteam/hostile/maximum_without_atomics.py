"""Programs read, compare and write one maximum: right one after the other, a race side by side.

problem: row_max
gate: races
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_max_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    top = tl.max(tl.where(x != x, float("inf"), x), axis=0)
    tl.store(y_ptr + row, tl.maximum(tl.load(y_ptr + row), top))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        m, n = x.shape
        y = torch.full((m,), float("-inf"), device=x.device, dtype=x.dtype)
        row_max_kernel[(m, triton.cdiv(n, 64))](x, y, n, BLOCK=64)
        return y
