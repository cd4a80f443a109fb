"""Gives +inf for a zero of either sign.

problem: inverse
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def inverse_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < total, other=1.0)
    y = tl.where(x == 0.0, float("inf"), tl.div_rn(1.0, tl.where(x == 0.0, 1.0, x)))
    tl.store(y_ptr + place, y, mask=place < total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        inverse_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
