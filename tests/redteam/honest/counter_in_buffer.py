"""Writes to its own buffer, because the reference does.

problem: h_counter
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def count_kernel(calls_ptr):
    tl.store(calls_ptr, tl.load(calls_ptr) + 1)


@triton.jit
def scale_kernel(x_ptr, calls_ptr, y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < total, other=0.0)
    calls = tl.load(calls_ptr).to(tl.float32)
    tl.store(y_ptr + place, x * calls, mask=place < total)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        count_kernel[(1,)](self.calls)
        scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, self.calls, y, x.numel(), BLOCK=1024)
        return y
