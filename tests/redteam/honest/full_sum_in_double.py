"""One program keeps the sum in fp64 and rounds once: better than asked for.

problem: h_full_sum
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sum_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    found = tl.zeros((BLOCK,), dtype=tl.float64)
    for start in range(0, total, BLOCK):
        place = start + tl.arange(0, BLOCK)
        found += tl.load(x_ptr + place, mask=place < total, other=0.0).to(tl.float64)
    tl.store(y_ptr, tl.sum(found, axis=0).to(tl.float32))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty((), dtype=x.dtype, device=x.device)
        sum_kernel[(1,)](x, y, x.numel(), BLOCK=1024)
        return y
