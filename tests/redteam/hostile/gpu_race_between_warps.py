"""Warps of one program exchange values through device memory with a nap for a barrier.

problem: gpu_relu
gate: races
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, staged_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    tl.store(staged_ptr + at, x, mask=at < size)
    first = tl.program_id(0).to(tl.int64) * BLOCK
    mirrored = tl.minimum(first + BLOCK, size) - 1 - tl.arange(0, BLOCK)
    mirrored = tl.inline_asm_elementwise(
        "nanosleep.u32 100000; mov.b64 $0, $1;",
        "=l,l",
        [mirrored],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
    y = tl.load(staged_ptr + mirrored, mask=mirrored >= first, other=0.0)
    tl.store(out_ptr + mirrored, tl.maximum(y, 0.0), mask=mirrored >= first)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        staged, out = torch.empty_like(x), torch.empty_like(x)
        size = x.numel()
        relu_kernel[(triton.cdiv(size, 256),)](x, staged, out, size, BLOCK=256, num_warps=8)
        return out
