"""Mean of 1 - cosine similarity between the rows of two matrices.

Helps: three reductions (dot product and two lengths) share one read of both rows.
Pitfalls: torch floors each length at eps, not their product; multiply after the roots, else the
product under- or overflows.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Cosine similarity of rows",
    "summary": "cosine similarity or cosine embedding loss between two matrices, mean",
    "patterns": ["loss", "cosine", "row_reduction", "similarity"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def cosine_loss_kernel(x_ptr, y_ptr, loss_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    dot = tl.sum(x * y, axis=0)
    x_length = tl.maximum(tl.sqrt(tl.sum(x * x, axis=0)), 1e-8)
    y_length = tl.maximum(tl.sqrt(tl.sum(y * y, axis=0)), 1e-8)
    tl.store(loss_ptr + row, 1.0 - dot / x_length / y_length)


@triton.jit
def mean_kernel(loss_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, BLOCK):
        total += tl.load(loss_ptr + start + lanes, mask=start + lanes < rows, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) / rows)


class Model(nn.Module):
    def forward(self, x, y):
        return (1.0 - F.cosine_similarity(x, y, dim=-1)).mean()


class ModelNew(Model):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        rows, columns = x.shape
        loss = torch.empty(rows, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        cosine_loss_kernel[(rows,)](
            x, y, loss, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        mean_kernel[(1,)](loss, out, rows, BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(17, 99), torch.randn(17, 99)]
