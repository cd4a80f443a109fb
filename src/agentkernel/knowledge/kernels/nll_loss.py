"""Negative log-likelihood of log-probabilities: reads one element a row, not the row.

Helps: the traffic is rows, not rows * classes; behind a log-softmax, fuse to cross-entropy
instead.
Pitfalls: one program a row is too small a program for large batches: take 256 rows each there.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Negative log-likelihood",
    "summary": "nll loss picks the log probability of the class, mean",
    "patterns": ["loss", "nll", "row_reduction"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def nll_loss_kernel(x_ptr, target_ptr, loss_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    label = tl.load(target_ptr + row)
    picked = tl.load(x_ptr + row * columns + column, mask=mask & (column == label), other=0.0)
    tl.store(loss_ptr + row, -tl.sum(picked.to(tl.float32), axis=0))


@triton.jit
def mean_kernel(loss_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, BLOCK):
        total += tl.load(loss_ptr + start + lanes, mask=start + lanes < rows, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) / rows)


class Model(nn.Module):
    def forward(self, x, target):
        return F.nll_loss(x, target)


class ModelNew(Model):
    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        rows, columns = x.shape
        loss = torch.empty(rows, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        nll_loss_kernel[(rows,)](
            x, target, loss, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        mean_kernel[(1,)](loss, out, rows, BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(17, 99).log_softmax(-1), torch.randint(0, 99, (17,))]
