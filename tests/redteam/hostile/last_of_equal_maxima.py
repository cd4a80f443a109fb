"""Names the last of several equal maxima instead of the first.

problem: argmax
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def argmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    tl.store(y_ptr + row, tl.max(tl.where(x == tl.max(x, axis=0), cols, 0), axis=0).to(tl.int64))


def argmax(x):
    x = x.contiguous()
    n = x.shape[-1]
    y = torch.empty(x.shape[:-1], device=x.device, dtype=torch.int64)
    argmax_kernel[(y.numel(),)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return argmax(x)
