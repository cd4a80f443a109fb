"""Uses its input as scratch and puts the values back.

problem: softmax
gate: inputs
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def stage_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, x, mask=mask)
    tl.store(x_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=mask)


@triton.jit
def swap_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    a = tl.load(x_ptr + i, mask=mask)
    b = tl.load(y_ptr + i, mask=mask)
    tl.store(x_ptr + i, b, mask=mask)
    tl.store(y_ptr + i, a, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        stage_kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        swap_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
