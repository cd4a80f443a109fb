"""Takes what lies in a dictionary by place: one whose entries were put in the other way round gives
the other sign.

problem: named_difference
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sub_kernel(a_ptr, b_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    a = tl.load(a_ptr + i, mask=mask, other=0.0) - tl.load(b_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, a, mask=mask)


class ModelNew(nn.Module):
    def forward(self, batch):
        a, b = (part.contiguous() for part in batch.values())
        y = torch.empty_like(a)
        total = a.numel()
        if total:
            sub_kernel[(triton.cdiv(total, 1024),)](a, b, y, total, BLOCK=1024)
        return y
