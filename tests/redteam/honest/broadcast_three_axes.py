"""A grid with three axes, and strides of 0 for what is broadcast.

problem: h_affine_3d
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def square_affine_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, rows, cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
):
    batch = tl.program_id(2)
    r = tl.program_id(1) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r < rows)[:, None] & (c < cols)[None, :]
    place = batch * rows * cols + r[:, None] * cols + c[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    w = tl.load(w_ptr + r, mask=r < rows, other=0.0)[:, None]
    b = tl.load(b_ptr + c, mask=c < cols, other=0.0)[None, :]
    y = x * w + b
    tl.store(y_ptr + place, y * y, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, w, b):
        x, w, b = x.contiguous(), w.contiguous(), b.contiguous()
        y = torch.empty_like(x)
        batch, rows, cols = x.shape
        grid = (triton.cdiv(cols, 128), triton.cdiv(rows, 32), batch)
        square_affine_kernel[grid](x, w, b, y, rows, cols, BLOCK_R=32, BLOCK_C=128)
        return y
