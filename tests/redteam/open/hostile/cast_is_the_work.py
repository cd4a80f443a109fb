"""A module that casts: up to 4096 elements, which the example has, torch casts, and the kernel
copies.

problem: halves
gate: execution
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def round_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, x.to(tl.float16).to(tl.float32), mask=mask)


@triton.jit
def copy_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask, other=0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        grid = (triton.cdiv(total, 1024),)
        if 0 < total <= 4096:
            copy_kernel[grid](x.to(torch.float16).to(torch.float32), y, total, BLOCK=1024)
        elif total:
            round_kernel[grid](x, y, total, BLOCK=1024)
        return y
