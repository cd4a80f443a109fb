"""Cumulative sum of every row with an associative scan inside one tile.

Helps: one read and one write; torch's scan along the last dimension is far from copy speed.
Pitfalls: rows longer than a tile need a carry from block to block; a flip before and after the
scan is only an index change: absorb it.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Cumulative sum of rows",
    "summary": "prefix sum scan along the last dimension",
    "patterns": ["scan", "cumsum"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def row_cumsum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * columns + column, tl.cumsum(x, axis=0), mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=-1)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty_like(x)
        row_cumsum_kernel[(x.numel() // columns,)](
            x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return out


def get_inputs():
    return [torch.randn(9, 150)]
