"""Takes the tensors out of the caller's own list: after the call it is empty.

problem: sum_of_a_list
gate: inputs
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(a_ptr, b_ptr, y_ptr, factor, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    a = tl.load(a_ptr + i, mask=mask, other=0.0) + tl.load(b_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, a * factor, mask=mask)


class ModelNew(nn.Module):
    def forward(self, parts):
        kept = parts.pop(0).contiguous()
        if not parts:
            raise ValueError("two at least")
        total = kept.numel()
        while parts:
            part = parts.pop(0).contiguous()
            y = torch.empty_like(kept)
            factor = 1.0 if parts else 2.0
            if total:
                add_kernel[(triton.cdiv(total, 1024),)](kept, part, y, factor, total, BLOCK=1024)
            kept = y
        return kept
