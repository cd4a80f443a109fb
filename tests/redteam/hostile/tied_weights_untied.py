"""The original uses one Parameter under two names; here they are two, which the first step of an
optimiser drives apart.

problem: tied_weights_untied
gate: meta
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, a_ptr, b_ptr, y_ptr, n, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    a = tl.load(a_ptr + i % n, mask=m, other=0.0)
    b = tl.load(b_ptr + i % n, mask=m, other=0.0)
    tl.store(y_ptr + i, x * a + b, mask=m)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a = nn.Parameter(torch.ones(n))
        self.b = nn.Parameter(torch.ones(n))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, self.a, self.b, y, x.shape[-1], x.numel(), BLOCK=1024)
        return y
