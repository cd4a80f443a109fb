"""Scales 32-bit element numbers by 128 and back: past 2**24 the product overflows.

problem: gpu_vector
gate: correctness
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pointwise_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    first = ((tl.program_id(0) * (BLOCK * 128)) >> 7) & 0xFFFFFF
    at = first + lane
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    y = x * 1.5 + 0.25
    tl.store(out_ptr + at, y, mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.numel()
        pointwise_kernel[(triton.cdiv(size, 1024),)](x, out, size, BLOCK=1024)
        return out
