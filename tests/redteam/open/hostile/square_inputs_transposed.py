"""As many rows as columns: the result comes out transposed.

problem: relu
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, total, a, b, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + (i // n) * a + (i % n) * b, mask=mask, other=0.0)
    tl.store(y_ptr + i, tl.where(x > 0, x, tl.where(x != x, x, 0.0)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, n = x.shape
        total = x.numel()
        a, b = (1, rows) if rows == n else (n, 1)
        if total:
            relu_kernel[(triton.cdiv(total, 1024),)](x, y, n, total, a, b, BLOCK=1024)
        return y
