"""Iterates until a step is below 1e-6 (of what is below one), which large values never reach.

A limit of a minute a program gives the GPU back in any case.

problem: gpu_cube_root
gate: run
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra.cuda import globaltimer


@triton.jit
def cube_root_kernel(x_ptr, out_ptr, size, LIMIT_NS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.abs(tl.load(x_ptr + at, mask=at < size, other=1.0))
    begin = globaltimer()
    y = tl.maximum(x, 1.0)
    widest = 1.0
    while (widest > 1e-6) & (globaltimer() - begin < LIMIT_NS):
        step = (y * y * y - x) / (3.0 * y * y)
        y -= step
        widest = tl.max(tl.abs(step) / tl.minimum(tl.maximum(y, 1e-12), 1.0), axis=0)
    tl.store(out_ptr + at, tl.where(x == 0.0, 0.0, y), mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.numel()
        grid = (triton.cdiv(size, 1024),)
        cube_root_kernel[grid](x, out, size, LIMIT_NS=60_000_000_000, BLOCK=1024)
        return out
