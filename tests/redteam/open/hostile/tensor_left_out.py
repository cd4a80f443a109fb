"""The example gives both tensors; where the second is left out, the first is taken for it, too.

problem: optional_residual
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, r_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0) + tl.load(r_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, tl.where(x > 0, x, tl.where(x != x, x, 0.0)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, residual=None):
        x = x.contiguous()
        residual = x if residual is None else residual.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            add_kernel[(triton.cdiv(total, 1024),)](x, residual, y, total, BLOCK=1024)
        return y
