"""Unbiased variance of every row, by centred values.

Helps: one read; the row stays in registers between mean and squares.
Pitfalls: E[x*x] - E[x]**2 cancels; divide by n - 1 (torch's default), and zero masked lanes after
centring.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Variance of rows",
    "summary": "variance or standard deviation of the last dimension",
    "patterns": ["reduction", "variance", "row_reduction"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def row_variance_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / columns, 0.0)
    tl.store(out_ptr + row, tl.sum(centred * centred, axis=0) / (columns - 1))


class Model(nn.Module):
    def forward(self, x):
        return x.var(dim=-1)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        row_variance_kernel[(x.numel() // columns,)](
            x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return out


def get_inputs():
    return [torch.randn(9, 150)]
