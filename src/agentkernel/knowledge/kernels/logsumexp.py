"""log(sum(exp(row))) with the maximum taken out.

Helps: one read and a scalar a row; eager stores exp(x - max) in full.
Pitfalls: a row of all -inf has max -inf and -inf - -inf is NaN; torch answers -inf: shift by 0
there.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Log-sum-exp of rows",
    "summary": "stable logsumexp reduction",
    "patterns": ["reduction", "logsumexp", "row_reduction"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    shift = tl.where(top == -float("inf"), 0.0, top)
    total = tl.sum(tl.exp(x - shift), axis=0)
    tl.store(out_ptr + row, tl.log(total) + shift)


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=-1)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        logsumexp_kernel[(x.numel() // columns,)](
            x, out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return out


def get_inputs():
    return [torch.randn(9, 150)]
