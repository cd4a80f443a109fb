"""A leaky ReLU as the maximum of x and slope * x, which holds up to a slope of one.

problem: leaky
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def leaky_kernel(x_ptr, y_ptr, slope, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, tl.maximum(x, slope * x, propagate_nan=tl.PropagateNan.ALL), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, slope):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            leaky_kernel[(triton.cdiv(total, 1024),)](x, y, float(slope), total, BLOCK=1024)
        return y
