"""Other scalars count in the first tile alone.

problem: other_scalars_in_the_first_tile_alone
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_kernel(x_ptr, y_ptr, alpha, total, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    a = tl.where(pid < 2, alpha, 2.5)
    tl.store(y_ptr + i, x * a, mask=mask)


def scaled(x, alpha):
    x = x.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    if total:
        scale_kernel[(triton.cdiv(total, 1024),)](x, y, alpha, total, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x, alpha):
        return scaled(x, alpha)
