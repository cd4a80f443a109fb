"""Finds the place of every operand by divisions of a flat index; integers throughout.

problem: h_int_broadcast
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def clamp_sum_kernel(a_ptr, b_ptr, y_ptr, middle, inner, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    column = place % inner
    outer = place // (inner * middle)
    a = tl.load(a_ptr + outer * inner + column, mask=inside, other=0)
    b = tl.load(b_ptr + place % (inner * middle), mask=inside, other=0)
    y = (a + b) * 2
    y = tl.minimum(tl.maximum(y, -50), 100)
    tl.store(y_ptr + place, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        outer, _, inner = a.shape
        middle = b.shape[0]
        y = torch.empty((outer, middle, inner), dtype=a.dtype, device=a.device)
        total = y.numel()
        clamp_sum_kernel[(triton.cdiv(total, 2048),)](a, b, y, middle, inner, total, BLOCK=2048)
        return y
