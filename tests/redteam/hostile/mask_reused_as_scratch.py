"""Uses the boolean input as scratch and leaves it cleared.

problem: masked_fill
gate: inputs
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def masked_fill_kernel(x_ptr, m_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    x = tl.load(x_ptr + i, mask=inside)
    m = tl.load(m_ptr + i, mask=inside, other=0)
    tl.store(y_ptr + i, tl.where(m != 0, -1.0, x), mask=inside)
    tl.store(m_ptr + i, m & 0, mask=inside)


def masked_fill(x, mask):
    x, mask = x.contiguous(), mask.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    masked_fill_kernel[(triton.cdiv(total, 1024),)](x, mask, y, total, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return masked_fill(x, mask)
