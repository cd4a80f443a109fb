"""Loads both columns of a window at once and sums them along the last axis of a tile.

problem: h_avgpool_fp16
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pool_kernel(x_ptr, y_ptr, H, W, OH, OW, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (place < total)[:, None]
    plane, row, col = place // (OH * OW), place // OW % OH, place % OW
    first = ((plane * H + row * 2) * W + col * 2)[:, None] + tl.arange(0, 2)[None, :]
    upper = tl.load(x_ptr + first, mask=inside, other=0.0).to(tl.float32)
    lower = tl.load(x_ptr + first + W, mask=inside, other=0.0).to(tl.float32)
    y = tl.sum(upper + lower, axis=1) * 0.25
    tl.store(y_ptr + place, y.to(tl.float16), mask=place < total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, H, W = x.shape
        OH, OW = H // 2, W // 2
        y = torch.empty((batch, channels, OH, OW), dtype=x.dtype, device=x.device)
        total = y.numel()
        pool_kernel[(triton.cdiv(total, 512),)](x, y, H, W, OH, OW, total, BLOCK=512)
        return y
