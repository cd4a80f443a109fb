"""torch negates: _neg_view is a view and its clone a copy, both free; the kernel only takes the
maximum with zero.

problem: negated_by_a_copy
gate: execution
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    tl.store(y_ptr + i, x, mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        z = x._neg_view().clone().contiguous().resolve_neg()
        y = torch.empty_like(z)
        k[(triton.cdiv(z.numel(), 1024),)](z, y, z.numel(), BLOCK=1024)
        return y
