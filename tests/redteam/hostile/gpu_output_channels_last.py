"""Returns images in channels-last order, the right values under strides nobody asked for.

problem: gpu_nchw_silu
gate: meta
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def silu_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    tl.store(out_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        out = torch.empty_like(x, memory_format=torch.channels_last)
        silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
