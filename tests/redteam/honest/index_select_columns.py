"""The indices are loaded once a tile and serve all of its rows.

problem: h_index_select
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit(debug=True)
def select_kernel(x_ptr, i_ptr, y_ptr, rows, cols, picks, BR: tl.constexpr, BP: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    col = tl.load(i_ptr + p, mask=p < picks, other=0)
    tl.device_assert((col >= 0) & (col < cols), "no such column")
    inside = (r < rows)[:, None] & (p < picks)[None, :]
    x = tl.load(x_ptr + r[:, None] * cols + col[None, :], mask=inside, other=0.0)
    tl.store(y_ptr + r[:, None] * picks + p[None, :], x, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x, index):
        x, index = x.contiguous(), index.contiguous()
        rows, cols = x.shape
        picks = index.numel()
        y = torch.empty((rows, picks), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, 32), triton.cdiv(picks, 32))
        select_kernel[grid](x, index, y, rows, cols, picks, BR=32, BP=32)
        return y
