"""Takes the hyperbolic tangent from tanh.approx, good to eleven bits.

problem: gpu_gelu
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
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [inner], dtype=tl.float32, is_pure=True, pack=1
    )
    y = 0.5 * x * (1.0 + y)
    tl.store(out_ptr + at, y, mask=at < size)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        size = x.numel()
        pointwise_kernel[(triton.cdiv(size, 1024),)](x, out, size, BLOCK=1024)
        return out
