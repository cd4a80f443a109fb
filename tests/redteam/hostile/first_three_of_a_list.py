"""A list of any length comes in; the first three are added, a fourth is left out without a word.

problem: first_three_of_a_list
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(a_ptr, b_ptr, c_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    a = tl.load(a_ptr + i, mask=m, other=0.0)
    b = tl.load(b_ptr + i, mask=m, other=0.0)
    c = tl.load(c_ptr + i, mask=m, other=0.0)
    tl.store(y_ptr + i, a + b + c, mask=m)


class ModelNew(nn.Module):
    def forward(self, xs):
        a, b, c = xs[0].contiguous(), xs[1].contiguous(), xs[2].contiguous()
        y = torch.empty_like(a)
        k[(triton.cdiv(a.numel(), 1024),)](a, b, c, y, a.numel(), BLOCK=1024)
        return y
