"""max(x, w*x) for PReLU: wrong for a learned slope above 1 (w=2: x=-1 gives -1, not -2).

problem: prelu_as_max
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, w_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    w = tl.load(w_ptr)
    a = w * x
    tl.store(y_ptr + i, tl.where(a > x, a, x), mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.PReLU()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, self.act.weight, y, x.numel(), BLOCK=1024)
        return y
