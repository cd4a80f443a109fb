"""Dequantise an int8 matrix whose columns share a scale in groups.

Helps: one byte in, two or four out: fuse it into the consumer where there is one.
Pitfalls: widen to fp32 before the product; the group of a column is column // group, so the width
must be a multiple of it.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Dequantise int8 weights by groups",
    "summary": "int8 dequantisation with a scale per group of columns",
    "patterns": ["dequantise", "quantise", "pointwise", "broadcast"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def dequantise_kernel(x_ptr, scale_ptr, out_ptr, columns, group, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    level = tl.load(x_ptr + row * columns + column, mask=mask, other=0).to(tl.float32)
    scale = tl.load(scale_ptr + row * (columns // group) + column // group, mask=mask, other=0.0)
    tl.store(out_ptr + row * columns + column, level * scale.to(tl.float32), mask=mask)


class Model(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, levels, scale):
        return levels.to(scale.dtype) * scale.repeat_interleave(self.group, dim=1)


class ModelNew(Model):
    def forward(self, levels, scale):
        levels, scale = levels.contiguous(), scale.contiguous()
        rows, columns = levels.shape
        out = torch.empty(rows, columns, dtype=scale.dtype, device=levels.device)
        dequantise_kernel[(rows, triton.cdiv(columns, 256))](
            levels, scale, out, columns, self.group, BLOCK=256, num_warps=4
        )
        return out


def get_inputs():
    levels = torch.randint(-128, 128, (12, 96), dtype=torch.int8)
    return [levels, torch.rand(12, 3)]


def get_init_inputs():
    return [32]
