"""An offset past 32 bits, as of a number that stands for a time, loses its upper half.

problem: shifted_integers
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, y_ptr, offset, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0)
    tl.store(y_ptr + i, x + offset, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, offset):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            low = ((offset + 2147483648) % 4294967296) - 2147483648
            add_kernel[(triton.cdiv(total, 1024),)](x, y, low, total, BLOCK=1024)
        return y
