"""Moves bfloat16 as 16-bit integers through a view: bits are not touched.

problem: h_flip
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def flip_kernel(x_ptr, y_ptr, cols, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    row, col = place // cols, place % cols
    x = tl.load(x_ptr + row * cols + cols - 1 - col, mask=inside, other=0)
    tl.store(y_ptr + place, x, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        flip_kernel[(triton.cdiv(total, 1024),)](
            x.view(torch.int16), y.view(torch.int16), x.shape[-1], total, BLOCK=1024
        )
        return y
