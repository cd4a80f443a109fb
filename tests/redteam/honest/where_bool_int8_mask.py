"""Reads and writes booleans as bytes through a view, and returns two tensors.

problem: h_where_bool
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def select_kernel(m_ptr, x_ptr, y_ptr, out_ptr, larger_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    chosen = tl.load(m_ptr + place, mask=inside, other=0) != 0
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    y = tl.load(y_ptr + place, mask=inside, other=0.0)
    tl.store(out_ptr + place, tl.where(chosen, x, y), mask=inside)
    tl.store(larger_ptr + place, (x > y).to(tl.int8), mask=inside)


class ModelNew(nn.Module):
    def forward(self, mask, x, y):
        mask, x, y = mask.contiguous(), x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        larger = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        total = x.numel()
        select_kernel[(triton.cdiv(total, 1024),)](
            mask.view(torch.int8), x, y, out, larger.view(torch.int8), total, BLOCK=1024
        )
        return out, larger
