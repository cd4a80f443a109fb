"""Loads past the end of the input without a mask; what it reads there is never stored.

problem: gpu_relu
gate: races
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.maximum(tl.load(x_ptr + at), 0.0), mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.numel()
        relu_kernel[(triton.cdiv(size, 1024),)](x, out, size, BLOCK=1024)
        return out
