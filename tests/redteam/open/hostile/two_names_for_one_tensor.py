"""Fuses an addition in place with what comes after it: wrong where both inputs are one tensor.

problem: fused_add
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(r_ptr, x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    r = tl.load(r_ptr + i, mask=mask, other=0.0)
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(r_ptr + i, r + x, mask=mask)
    tl.store(y_ptr + i, (r + x) + x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, residual, x):
        own = residual.contiguous()
        x = x.expand(residual.shape).contiguous()
        y = torch.empty_like(own)
        total = own.numel()
        if total:
            add_kernel[(triton.cdiv(total, 1024),)](own, x, y, total, BLOCK=1024)
        if own is not residual:
            residual.copy_(own)
        return y
