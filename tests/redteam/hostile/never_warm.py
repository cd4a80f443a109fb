"""Leaves out the end of a warm-up: the factor goes on growing past one.

problem: warmup
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_kernel(x_ptr, step_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    factor = tl.load(step_ptr).to(tl.float32) / 100.0
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, x * factor, mask=mask)


@triton.jit
def count_kernel(step_ptr):
    tl.store(step_ptr, tl.load(step_ptr) + 1)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        count_kernel[(1,)](self.step)
        if total:
            scale_kernel[(triton.cdiv(total, 1024),)](x, self.step, y, total, BLOCK=1024)
        return y
