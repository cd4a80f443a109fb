"""Layer normalisation of rows that do not fit into registers: one program loops over blocks.

Helps: rows past 32k elements. Pass one merges block means and centred sums of squares (Chan's
formula: exact where plain sums of squares cancel); pass two reads the row again, mostly from L2.
Pitfalls: the second read is from DRAM where rows in flight outgrow L2; the last block's count has
to enter the merge, not BLOCK.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Layer normalisation of rows too long for one tile",
    "summary": "layer norm with a loop over blocks of a very long row",
    "patterns": ["norm", "layernorm", "row_norm", "looped"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8", "row.persistent_limit@hopper": "32768"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def layernorm_looped_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    mean = 0.0
    squares = 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(columns - start, BLOCK)
        block_mean = tl.sum(x, axis=0) / count
        centred = tl.where(mask, x - block_mean, 0.0)
        delta = block_mean - mean
        squares += tl.sum(centred * centred, axis=0) + delta * delta * start * count / (
            start + count
        )
        mean += delta * count / (start + count)
    rstd = 1.0 / tl.sqrt(squares / columns + eps)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + column, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * weight + bias
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
        layernorm_looped_kernel[(x.numel() // columns,)](
            x, self.norm.weight, self.norm.bias, out, columns, self.norm.eps, BLOCK=256, num_warps=8
        )
        return out


def get_inputs():
    return [torch.randn(4, 700) + 3.0]


def get_init_inputs():
    return [700]
