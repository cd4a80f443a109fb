"""A stable sort was asked for; equal elements come in reversed order.

problem: stable
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def order_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0)
    rank = tl.zeros([BLOCK], dtype=tl.int64)
    for k in range(n):
        other = tl.load(x_ptr + row * n + k)
        rank += ((other < x) | ((other == x) & (k > cols))).to(tl.int64)
    tl.store(y_ptr + row * n + rank, cols.to(tl.int64), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        n = x.shape[-1]
        if y.numel():
            order_kernel[(y.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
