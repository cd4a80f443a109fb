"""A scan whose step is not associative: the interpreter goes from left to right, a GPU does not.

problem: scan_that_is_not_associative
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def step(state, x):
    return 0.5 * state + x


@triton.jit
def average_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    y = tl.associative_scan(x, 0, step)
    tl.store(y_ptr + row * n + cols, y, mask=cols < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        if x.numel():
            average_kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
