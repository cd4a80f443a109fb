"""Bias add and exact GELU in one pass over [rows, columns].

Helps: after a library GEMM that could not take an epilogue: saves one read and one write of the
activation. A 2-D grid (row blocks by column blocks) loads the bias once a block and needs no
remainder.
Pitfalls: column blocks wider than the row waste lanes; keep BLOCK_N a power of two at or below
1024.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Bias add and GELU",
    "summary": "add a bias vector to each row then apply gelu",
    "patterns": ["pointwise", "broadcast", "activation"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def bias_gelu_kernel(
    x_ptr, bias_ptr, out_ptr, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = column < columns
    mask = (row < rows)[:, None] & inside[None, :]
    offsets = row[:, None] * columns + column[None, :]
    bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32) + bias[None, :]
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + offsets, y, mask=mask)


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return F.gelu(x + self.bias)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        rows = x.numel() // columns
        grid = (triton.cdiv(rows, 8), triton.cdiv(columns, 128))
        bias_gelu_kernel[grid](
            x, self.bias, out, rows, columns, BLOCK_M=8, BLOCK_N=128, num_warps=4
        )
        return out


def get_inputs():
    return [torch.randn(19, 150)]


def get_init_inputs():
    return [150]
