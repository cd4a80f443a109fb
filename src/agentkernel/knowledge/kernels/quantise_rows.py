"""Symmetric int8 quantisation of rows and back: the scale is the row's largest magnitude over
127.

Helps: scale and rounding in one pass; eager reads the tensor three times.
Pitfalls: torch.round goes to even: floor(x + 0.5) differs on halves, so take it back there. An
all-zero row has scale 0: floor it.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Quantise rows to int8",
    "summary": "dynamic int8 quantisation with one scale a row",
    "patterns": ["quantise", "row_reduction", "pointwise"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def quantise_rows_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0) / 127.0, 1e-8)
    level = x / scale
    near = tl.floor(level + 0.5)
    tie = (near - level) == 0.5
    odd = (near - 2.0 * tl.floor(near * 0.5)) == 1.0
    near = tl.where(tie & odd, near - 1.0, near)
    tl.store(out_ptr + row * columns + column, near.to(tl.int8), mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return torch.round(x / (x.abs().amax(-1, True) / 127.0).clamp_min(1e-8)).to(torch.int8)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        quantise_rows_kernel[(x.numel() // columns,)](
            x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return out


def get_inputs():
    return [torch.randn(9, 150)]
