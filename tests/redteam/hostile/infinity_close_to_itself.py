"""Closeness by the difference alone: equal infinities are not close, since inf - inf is NaN.

problem: isclose
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def close_kernel(a_ptr, b_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    a = tl.load(a_ptr + i, mask=mask, other=0.0)
    b = tl.load(b_ptr + i, mask=mask, other=0.0)
    allowed = 1e-3 + tl.abs(1e-3 * b)
    off = tl.abs(a - b)
    finite = off < float("inf")
    tl.store(y_ptr + i, (off <= allowed) & finite, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        shape = torch.broadcast_shapes(a.shape, b.shape)
        a, b = a.expand(shape), b.expand(shape)
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty(a.shape, dtype=torch.bool, device=a.device)
        total = a.numel()
        if total:
            close_kernel[(triton.cdiv(total, 1024),)](a, b, y, total, BLOCK=1024)
        return y
