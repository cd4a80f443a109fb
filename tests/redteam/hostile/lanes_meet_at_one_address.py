"""Lanes of one store write different values to one address.

problem: lanes_meet_at_one_address
gate: races
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def last_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + c, mask=c < n, other=0.0)
    place = y_ptr + row + tl.zeros([BLOCK], tl.int64)
    tl.store(place, c.to(tl.int64), mask=(c < n) & ((x > 0) | (c == 0)))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        y = torch.empty(x.shape[:-1], dtype=torch.int64, device=x.device)
        if y.numel():
            last_kernel[(y.numel(),)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
