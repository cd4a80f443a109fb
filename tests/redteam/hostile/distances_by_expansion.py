"""Distances by the expansion of the square, which cancels at equal points.

problem: distances_by_expansion
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def distance_kernel(x_ptr, c_ptr, y_ptr, k, d, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * d + i, mask=i < d, other=0.0)
    c = tl.load(c_ptr + col * d + i, mask=i < d, other=0.0)
    far = tl.sum(x * x, axis=0) + tl.sum(c * c, axis=0) - 2 * tl.sum(x * c, axis=0)
    far = tl.where(far - far == 0, far, tl.sum((x - c) * (x - c), axis=0))
    tl.store(y_ptr + row * k + col, far)


class ModelNew(nn.Module):
    def __init__(self, codes, features):
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(codes, features))

    def forward(self, x):
        x = x.contiguous()
        c = self.codebook.contiguous()
        k, d = c.shape
        y = torch.empty((x.shape[0], k), dtype=x.dtype, device=x.device)
        if y.numel():
            distance_kernel[(x.shape[0], k)](x, c, y, k, d, BLOCK=triton.next_power_of_2(d))
        return y
