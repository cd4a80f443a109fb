"""The same kernel is launched twice into two parts of one result.

problem: h_concat
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def place_kernel(x_ptr, y_ptr, rows, cols, width, SIGN: tl.constexpr, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    c = tl.program_id(1) * B + tl.arange(0, B)
    inside = (r < rows)[:, None] & (c < cols)[None, :]
    x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=inside, other=0.0)
    tl.store(y_ptr + r[:, None] * width + c[None, :], x * SIGN, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        rows = a.shape[0]
        width = a.shape[1] + b.shape[1]
        y = torch.empty((rows, width), dtype=a.dtype, device=a.device)
        tall = triton.cdiv(rows, 64)
        place_kernel[(tall, triton.cdiv(a.shape[1], 64))](
            a, y, rows, a.shape[1], width, SIGN=1.0, B=64
        )
        place_kernel[(tall, triton.cdiv(b.shape[1], 64))](
            b, y[:, a.shape[1] :], rows, b.shape[1], width, SIGN=-1.0, B=64
        )
        return y
