"""The plain formula: NaN where both are -inf (no probability) or both +inf.

problem: logaddexp
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def logaddexp_kernel(a_ptr, b_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    a = tl.load(a_ptr + i, mask=mask, other=0.0)
    b = tl.load(b_ptr + i, mask=mask, other=0.0)
    top = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    y = top + tl.log(1.0 + tl.exp(-tl.abs(a - b)))
    tl.store(y_ptr + i, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        shape = torch.broadcast_shapes(a.shape, b.shape)
        a, b = a.expand(shape), b.expand(shape)
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty_like(a)
        total = a.numel()
        if total:
            logaddexp_kernel[(triton.cdiv(total, 1024),)](a, b, y, total, BLOCK=1024)
        return y
