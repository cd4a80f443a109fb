"""Mean of every row: one program a row, tree sum in fp32.

Helps: long rows, and as the pattern for any associative reduction of the last dimension.
Pitfalls: short rows (under 512) want several rows a program; few long rows want a split over
programs.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Sum or mean of rows",
    "summary": "reduce the last dimension: sum, mean",
    "patterns": ["reduction", "row_reduction", "sum"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def row_mean_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(x, axis=0) / columns)


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=-1)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        row_mean_kernel[(x.numel() // columns,)](
            x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return out


def get_inputs():
    return [torch.randn(9, 150)]
