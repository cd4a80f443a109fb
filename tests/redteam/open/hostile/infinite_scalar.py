"""Writes mask * value + kept: a value of -inf, with which attention is masked, makes NaN of all
that is kept.

problem: fill_value
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def fill_kernel(x_ptr, m_ptr, y_ptr, value, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    m = tl.load(m_ptr + place, mask=inside, other=0) != 0
    y = tl.where(m, 0.0, x) + m.to(tl.float32) * value
    tl.store(y_ptr + place, y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, mask, value):
        x, mask = x.contiguous(), mask.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        fill_kernel[(triton.cdiv(total, 1024),)](x, mask, y, value, total, BLOCK=1024)
        return y
