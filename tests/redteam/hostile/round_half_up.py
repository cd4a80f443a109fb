"""floor(x + 0.5) for torch.round: wrong at every tie (0.5 -> 1 instead of 0, -1.5 -> -1 instead of
-2).

problem: round
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    t = tl.floor(x)
    y = tl.where(x - t < 0.5, t, t + 1.0)
    y = tl.where(tl.abs(x) < 8388608.0, y, x)
    tl.store(y_ptr + i, y, mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
