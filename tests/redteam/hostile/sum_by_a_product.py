"""Under "mixed" the row sums are a product with a vector of ones.

problem: row_sum
gate: execution
needs: cpu
policy: mixed
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def copy_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask, other=0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        total = torch.matmul(x, x.new_ones(x.shape[-1]))
        y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        if y.numel():
            copy_kernel[(triton.cdiv(y.numel(), 1024),)](total, y, y.numel(), BLOCK=1024)
        return y
