"""Takes the sign by a comparison: -0.0 counts as positive.

problem: copysign
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, s_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    s = tl.load(s_ptr + i, mask=mask, other=0.0)
    y = tl.where(s < 0, -tl.abs(x), tl.abs(x))
    tl.store(y_ptr + i, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, s):
        x = x.contiguous()
        s = s.contiguous()
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, s, y, x.numel(), BLOCK=1024)
        return y
