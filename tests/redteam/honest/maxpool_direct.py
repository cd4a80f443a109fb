"""Keyword-only constructor; windows overlap and hang over the edge.

problem: h_maxpool
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pool_kernel(
    x_ptr, y_ptr, H, W, OH, OW, total, stride, padding, KERNEL: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    plane = place // (OH * OW)
    row = place // OW % OH * stride - padding
    col = place % OW * stride - padding
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for tap in tl.static_range(KERNEL * KERNEL):
        y = row + tap // KERNEL
        x = col + tap % KERNEL
        inside = (place < total) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        value = tl.load(x_ptr + (plane * H + y) * W + x, mask=inside, other=float("-inf"))
        best = tl.maximum(best, value, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + place, best, mask=place < total)


class ModelNew(nn.Module):
    def __init__(self, *, kernel, stride, padding):
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def forward(self, x):
        x = x.contiguous()
        batch, channels, H, W = x.shape
        OH = (H + 2 * self.padding - self.kernel) // self.stride + 1
        OW = (W + 2 * self.padding - self.kernel) // self.stride + 1
        y = torch.empty((batch, channels, OH, OW), dtype=x.dtype, device=x.device)
        total = y.numel()
        pool_kernel[(triton.cdiv(total, 1024),)](
            x, y, H, W, OH, OW, total, self.stride, self.padding, KERNEL=self.kernel, BLOCK=1024
        )
        return y
