"""Ignores a buffer that is zero at the start, as a correction bias is.

problem: zero_buffer
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sigmoid_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, 1.0 / (1.0 + tl.exp(-x)), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.register_buffer("correction", torch.zeros(experts))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            sigmoid_kernel[(triton.cdiv(total, 1024),)](x, y, total, BLOCK=1024)
        return y
