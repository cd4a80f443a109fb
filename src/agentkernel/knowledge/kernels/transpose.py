"""Transposing copy of a matrix in square tiles.

Helps: turns an N-major operand into a K-major one, or NCHW into channels-last. Both sides stay
coalesced because the tile changes owner through shared memory.
Pitfalls: a 1-D grid of rows is many times slower; 64 x 64 tiles of 4 bytes are enough.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Transpose",
    "summary": "transposing copy of a matrix in tiles, permute to contiguous",
    "patterns": ["transpose", "layout", "permute"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=mask)
    tl.store(out_ptr + column[:, None] * rows + row[None, :], tl.trans(x), mask=tl.trans(mask))


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(columns, rows, dtype=x.dtype, device=x.device)
        transpose_kernel[(triton.cdiv(rows, 32), triton.cdiv(columns, 32))](
            x, out, rows, columns, BLOCK=32, num_warps=4
        )
        return out


def get_inputs():
    return [torch.randn(45, 83)]
