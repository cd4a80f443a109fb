"""Transposes in registers and takes either stride order of the input.

problem: h_transpose
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def transpose_kernel(x_ptr, y_ptr, rows, cols, step_r, step_c, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    c = tl.program_id(1) * B + tl.arange(0, B)
    inside = (r < rows)[:, None] & (c < cols)[None, :]
    x = tl.load(x_ptr + r[:, None] * step_r + c[None, :] * step_c, mask=inside, other=0.0)
    turned = tl.trans(x * 2.0)
    tl.store(y_ptr + c[:, None] * rows + r[None, :], turned, mask=tl.trans(inside))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = torch.empty((cols, rows), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, 64), triton.cdiv(cols, 64))
        transpose_kernel[grid](x, y, rows, cols, x.stride(0), x.stride(1), B=64)
        return y
