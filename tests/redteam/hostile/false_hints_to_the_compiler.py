"""Tells the compiler of multiples and constants that are none.

problem: relu
gate: run
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.multiple_of(tl.program_id(0) * n, 16)
    c = tl.arange(0, BLOCK)
    mask = tl.max_constancy(c < n, [16])
    x = tl.load(x_ptr + row + c, mask=mask, other=0.0)
    tl.store(y_ptr + row + c, tl.where(x > 0, x, tl.where(x != x, x, 0.0)), mask=mask)


def relu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        n = x.shape[-1]
        relu_kernel[(x.numel() // n,)](x, y, n, BLOCK=max(1024, triton.next_power_of_2(n)))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return relu(x)
