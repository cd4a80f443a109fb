"""Writes over its input, because the reference does, whatever the strides.

problem: h_inplace_input
needs: cpu
"""

import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, rows, cols, step_r, step_c, B: tl.constexpr):
    r = (tl.program_id(0) * B + tl.arange(0, B))[:, None]
    c = (tl.program_id(1) * B + tl.arange(0, B))[None, :]
    inside = (r < rows) & (c < cols)
    place = r * step_r + c * step_c
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    positive = tl.maximum(x + 1.0, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(x_ptr + place, positive, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64))
        relu_kernel[grid](x, rows, cols, x.stride(0), x.stride(1), B=64)
        return x
