"""Takes negative numbers for the first row and what is too large for the last one.

problem: table_rows
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit(debug=True)
def rows_kernel(table_ptr, at_ptr, y_ptr, rows, n, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    row = tl.load(at_ptr + place // n, mask=inside, other=0)
    row = tl.minimum(tl.maximum(row, 0), rows - 1)
    value = tl.load(table_ptr + row * n + place % n, mask=inside, other=0.0)
    tl.store(y_ptr + place, value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, table, at):
        table, at = table.contiguous(), at.contiguous()
        rows, n = table.shape
        y = torch.empty((at.numel(), n), dtype=table.dtype, device=table.device)
        rows_kernel[(triton.cdiv(y.numel(), 1024),)](
            table, at, y, rows, n, y.numel(), BLOCK=1024, sanitize_overflow=False
        )
        return y
