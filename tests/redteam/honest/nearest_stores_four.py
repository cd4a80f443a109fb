"""Walks the input and stores every element to four places.

problem: h_nearest
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def nearest_kernel(x_ptr, y_ptr, W, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    corner = place // W * 4 * W + place % W * 2
    for step in tl.static_range(4):
        tl.store(y_ptr + corner + step // 2 * 2 * W + step % 2, x, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, H, W = x.shape
        y = torch.empty((batch, channels, 2 * H, 2 * W), dtype=x.dtype, device=x.device)
        nearest_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, W, x.numel(), BLOCK=1024)
        return y
