"""A tile of fp64 sums, reduced once at the end.

problem: h_global_pool
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pool_kernel(x_ptr, y_ptr, planes, area, BP: tl.constexpr, BA: tl.constexpr):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    total = tl.zeros((BP, BA), dtype=tl.float64)
    for start in range(0, area, BA):
        a = start + tl.arange(0, BA)
        inside = (p < planes)[:, None] & (a < area)[None, :]
        x = tl.load(x_ptr + p[:, None] * area + a[None, :], mask=inside, other=0.0)
        total += x.to(tl.float64)
    mean = tl.sum(total, axis=1) / area
    tl.store(y_ptr + p, mean.to(tl.float32), mask=p < planes)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        y = torch.empty((batch, channels, 1, 1), dtype=x.dtype, device=x.device)
        planes = batch * channels
        pool_kernel[(triton.cdiv(planes, 8),)](x, y, planes, height * width, BP=8, BA=64)
        return y
