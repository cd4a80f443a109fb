"""The original returns the input itself, written to; here a copy comes back: what is written to
either is not seen in the other.

problem: doubled_in_place
gate: meta
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def double_kernel(x_ptr, y_ptr, n, a, b, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    place = (i // n) * a + (i % n) * b
    x = tl.load(x_ptr + place, mask=mask, other=0.0) * 2.0
    tl.store(x_ptr + place, x, mask=mask)
    tl.store(y_ptr + i, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        rows, n = x.shape
        if x.stride(0) == 0 and rows > 1:
            raise ValueError("several elements in one place")
        total = x.numel()
        if total:
            double_kernel[(triton.cdiv(total, 1024),)](
                x, y, n, x.stride(0), x.stride(1), total, BLOCK=1024
            )
        return y
