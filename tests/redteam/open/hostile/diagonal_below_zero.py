"""A diagonal below the main one counts as the main one: of integers the judge changes none to the
other sign.

problem: upper_triangle
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def triu_kernel(x_ptr, y_ptr, rows, n, diagonal, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    row = (i // n) % rows
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, tl.where(i % n >= row + tl.maximum(diagonal, 0), x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, diagonal=1):
        super().__init__()
        self.diagonal = diagonal

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            triu_kernel[(triton.cdiv(total, 1024),)](
                x, y, x.shape[-2], x.shape[-1], self.diagonal, total, BLOCK=1024
            )
        return y
