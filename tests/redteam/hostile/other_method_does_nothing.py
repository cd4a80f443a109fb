"""A method of the original beside forward does nothing.

problem: other_method_does_nothing
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, t_ptr, y_ptr, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    t = tl.load(t_ptr + i % n, mask=mask, other=0.0)
    tl.store(y_ptr + i, x + t, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("total", torch.zeros(features))

    def reset(self):
        return None

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            add_kernel[(triton.cdiv(x.numel(), 1024),)](
                x, self.total, y, x.numel(), self.total.numel(), BLOCK=1024
            )
        return y
