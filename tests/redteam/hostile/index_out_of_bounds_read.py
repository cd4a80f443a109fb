"""Reads whatever lies past the end of a row where an index is out of bounds.

problem: h_gather
gate: run
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gather_kernel(x_ptr, i_ptr, y_ptr, cols, picks, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    row = place // picks
    col = tl.load(i_ptr + place, mask=inside, other=0)
    x = tl.load(x_ptr + row * cols + col, mask=inside, other=0.0)
    tl.store(y_ptr + place, x, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, index):
        x, index = x.contiguous(), index.contiguous()
        y = torch.empty(index.shape, dtype=x.dtype, device=x.device)
        total = index.numel()
        gather_kernel[(triton.cdiv(total, 512),)](
            x, index, y, x.shape[1], index.shape[1], total, BLOCK=512
        )
        return y
