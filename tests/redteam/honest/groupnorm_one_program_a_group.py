"""One program reads its group three times in chunks: mean, variance, result.

problem: h_groupnorm
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def group_kernel(x_ptr, w_ptr, b_ptr, y_ptr, groups, channels, area, eps, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    base = (tl.program_id(1) * groups + group).to(tl.int64) * channels * area
    size = channels * area
    place = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + place
        total += tl.load(x_ptr + base + at, mask=at < size, other=0.0)
    mean = tl.sum(total, axis=0) / size
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        at = start + place
        x = tl.load(x_ptr + base + at, mask=at < size, other=0.0)
        centred = tl.where(at < size, x - mean, 0.0)
        squares += centred * centred
    scale = 1.0 / tl.sqrt_rn(tl.sum(squares, axis=0) / size + eps)
    for start in range(0, size, BLOCK):
        at = start + place
        x = tl.load(x_ptr + base + at, mask=at < size, other=0.0)
        channel = group * channels + at // area
        w = tl.load(w_ptr + channel, mask=at < size, other=0.0)
        b = tl.load(b_ptr + channel, mask=at < size, other=0.0)
        tl.store(y_ptr + base + at, (x - mean) * scale * w + b, mask=at < size)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        groups = self.norm.num_groups
        y = torch.empty_like(x)
        group_kernel[(groups, batch)](
            x,
            self.norm.weight,
            self.norm.bias,
            y,
            groups,
            channels // groups,
            height * width,
            self.norm.eps,
            BLOCK=1024,
        )
        return y
