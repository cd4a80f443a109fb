"""The padding value is what a masked load gives for elements outside.

problem: h_pad
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pad_kernel(x_ptr, y_ptr, H, W, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    OW = W + 3
    OH = H + 3
    plane = place // (OH * OW)
    row = place // OW % OH
    col = place % OW - 2
    inside = (place < total) & (row < H) & (col >= 0) & (col < W)
    x = tl.load(x_ptr + (plane * H + row) * W + col, mask=inside, other=-1.5)
    tl.store(y_ptr + place, x, mask=place < total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        planes, H, W = x.shape
        y = torch.empty((planes, H + 3, W + 3), dtype=x.dtype, device=x.device)
        total = y.numel()
        pad_kernel[(triton.cdiv(total, 1024),)](x, y, H, W, total, BLOCK=1024)
        return y
