"""Softmax over the last dimension, one program a row, one read and one write.

Helps: rows up to some 32k elements; near copy speed. Masked lanes load -inf, so exp gives 0.
Pitfalls: a row of all -inf gives NaN, as in torch; keep it. Subtract the maximum before exp.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Softmax over rows",
    "summary": "softmax of the last dimension, row in registers",
    "patterns": ["softmax", "row_softmax"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8", "row.persistent_limit@hopper": "32768"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def softmax_row_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=-float("inf")).to(tl.float32)
    shifted = x - tl.max(x, axis=0)
    weight = tl.exp(shifted)
    tl.store(out_ptr + row * columns + column, weight / tl.sum(weight, axis=0), mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty_like(x)
        softmax_row_kernel[(x.numel() // columns,)](
            x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return out


def get_inputs():
    return [torch.randn(9, 150)]
