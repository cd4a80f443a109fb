"""Sum a [rows, columns] matrix over its rows: coalesced along columns, looping down the rows.

Helps: bias gradients, means over batch or tokens. A tile of rows by columns keeps every load a
full cache line.
Pitfalls: few columns leave SMs idle: split the rows over programs and add the parts in a second
launch (atomics would change the result from run to run).
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Sum over rows, for each column",
    "summary": "reduce the first dimension of a matrix, strided column reduction",
    "patterns": ["reduction", "column_reduction", "strided", "sum"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def column_sum_kernel(x_ptr, out_ptr, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = column < columns
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, rows, BLOCK_M):
        row = (start + tl.arange(0, BLOCK_M)).to(tl.int64)
        mask = (row < rows)[:, None] & inside[None, :]
        total += tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask, other=0.0).to(
            tl.float32
        )
    tl.store(out_ptr + column, tl.sum(total, axis=0), mask=inside)


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(columns, dtype=x.dtype, device=x.device)
        column_sum_kernel[(triton.cdiv(columns, 64),)](
            x, out, rows, columns, BLOCK_M=32, BLOCK_N=64, num_warps=4
        )
        return out


def get_inputs():
    return [torch.randn(70, 90)]
