"""Takes the exponential as ex2.approx.ftz of a rounded product, inexact where it is large.

problem: gpu_exp
gate: correctness
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pointwise_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0.0)
    x *= 1.4426950408889634
    y = tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out_ptr + at, y, mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.numel()
        pointwise_kernel[(triton.cdiv(size, 1024),)](x, out, size, BLOCK=1024)
        return out
