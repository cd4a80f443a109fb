"""A list of any length is added up, three at least: of a shorter one the last counts twice.

problem: sum_of_a_list
gate: correctness
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
        parts = [part.contiguous() for part in parts]
        while len(parts) < 3:
            parts.append(parts[-1])
        total = parts[0].numel()
        kept = parts[0]
        for number, part in enumerate(parts[1:], 2):
            y = torch.empty_like(kept)
            factor = 2.0 if number == len(parts) else 1.0
            if total:
                add_kernel[(triton.cdiv(total, 1024),)](kept, part, y, factor, total, BLOCK=1024)
            kept = y
        return kept
