"""Returns its number on the CPU, which a comparison with one on the GPU takes as well.

problem: gpu_mean_square
gate: meta
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def square_sum_kernel(x_ptr, sums_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(x * x, axis=0))


@triton.jit
def mean_kernel(sums_ptr, out_ptr, programs, size, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, programs, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(sums_ptr + at, mask=at < programs, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) / size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        programs = triton.cdiv(x.numel(), 1024)
        sums = torch.empty(programs, device=x.device)
        out = torch.empty((), device=x.device)
        square_sum_kernel[(programs,)](x, sums, x.numel(), BLOCK=1024)
        mean_kernel[(1,)](sums, out, programs, x.numel(), BLOCK=1024)
        return out.cpu()
