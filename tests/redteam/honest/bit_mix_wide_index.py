"""Integers of 64 bits, with offsets of 64 bits too.

problem: h_bit_mix
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mix_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = place < total
    x = tl.load(x_ptr + place, mask=inside, other=0)
    x = x ^ (x >> 7)
    x = x * 2654435761
    tl.store(y_ptr + place, (x ^ (x >> 13)) & 0xFFFFFF, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        mix_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
