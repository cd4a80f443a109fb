"""sqrt(x*x + y*y) for torch.hypot: inf at 1e20, 0 at 1e-23, where hypot is a plain number.

problem: hypot_naive
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, o_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    y = tl.load(y_ptr + i, mask=m, other=0.0)
    inf = (tl.abs(x) == float("inf")) | (tl.abs(y) == float("inf"))
    tl.store(o_ptr + i, tl.where(inf, float("inf"), tl.sqrt(x * x + y * y)), mask=m)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, y, o, x.numel(), BLOCK=1024)
        return o
