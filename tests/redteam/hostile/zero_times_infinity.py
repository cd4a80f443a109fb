"""Skips what is multiplied by zero: the other factor is not even loaded.

problem: product
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def product_kernel(a_ptr, b_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    a = tl.load(a_ptr + i, mask=mask, other=0.0)
    b = tl.load(b_ptr + i, mask=mask & (a != 0), other=0.0)
    tl.store(y_ptr + i, a * b, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        shape = torch.broadcast_shapes(a.shape, b.shape)
        a, b = a.expand(shape), b.expand(shape)
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty_like(a)
        total = a.numel()
        if total:
            product_kernel[(triton.cdiv(total, 1024),)](a, b, y, total, BLOCK=1024)
        return y
