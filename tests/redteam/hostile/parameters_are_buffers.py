"""The weight is a buffer: same state dict, but parameters() is empty and no optimiser ever moves
it.

problem: weight_gradient_only_with_input
gate: meta
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, w_ptr, y_ptr, n, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    w = tl.load(w_ptr + i % n, mask=m, other=0.0)
    tl.store(y_ptr + i, x * w, mask=m)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("weight", torch.ones(n))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, self.weight, y, x.shape[-1], x.numel(), BLOCK=1024)
        return y
