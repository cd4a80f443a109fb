"""Subtracts from zero: -(0.0) is 0.0 and not -0.0, and what divides by it gets the other infinity.

problem: negated
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def negate_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, 0.0 - x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            negate_kernel[(triton.cdiv(total, 1024),)](x, y, total, BLOCK=1024)
        return y
