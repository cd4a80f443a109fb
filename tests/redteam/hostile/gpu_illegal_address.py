"""Touches an address of no allocation as soon as a row is no multiple of 16.

problem: gpu_softmax
gate: run
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    ahead = (cols % 16).to(tl.int64) << 42
    x = tl.load(x_ptr + ahead + row * cols + col, mask=mask, other=-float("inf"))
    weight = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + col, weight / tl.sum(weight, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
