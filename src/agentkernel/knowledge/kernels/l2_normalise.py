"""Divide every row by its Euclidean length, floored at 1e-12.

Helps: eager squares, sums, takes the root, clamps and divides in five kernels.
Pitfalls: x * x overflows in fp16 from 256 on: widen first.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Scale rows to unit length",
    "summary": "l2 normalise each row, divide by euclidean norm",
    "patterns": ["norm", "row_norm", "reduction", "l2"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def l2_normalise_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    length = tl.maximum(tl.sqrt(tl.sum(x * x, axis=0)), 1e-12)
    tl.store(out_ptr + row * columns + column, x / length, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=-1)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty_like(x)
        l2_normalise_kernel[(x.numel() // columns,)](
            x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return out


def get_inputs():
    return [torch.randn(9, 150)]
