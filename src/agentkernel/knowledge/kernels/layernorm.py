"""Layer normalisation over the last dimension: one program a row, the row held in registers.

Helps: one read and one write, against the copy ceiling. The mean is taken first and the variance
from centred values, both in fp32, so large offsets do not cancel.
Pitfalls: masked lanes must not enter the variance (zero them after centring). Rows past 32k
elements spill: loop over blocks instead. Too many warps on short rows waste time in the
reduction.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Layer normalisation, one row a program",
    "summary": "layer norm over the last dimension with weight and bias, row held in registers",
    "patterns": ["norm", "layernorm", "row_norm"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8", "row.persistent_limit@hopper": "32768"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=mask, other=0.0).to(tl.float32)
    y = centred / tl.sqrt(variance + eps) * weight + bias
    tl.store(out_ptr + row * columns + column, y, mask=mask)


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return self.norm(x)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty_like(x)
        layernorm_kernel[(x.numel() // columns,)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            columns,
            self.norm.eps,
            BLOCK=triton.next_power_of_2(columns),
            num_warps=8,
        )
        return out


def get_inputs():
    return [torch.randn(9, 200)]


def get_init_inputs():
    return [200]
