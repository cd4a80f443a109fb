"""One tile of 1024 for a row whose width the constructor says: a module of 4096 features loses the
rest of each row.

problem: centred
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def centre_kernel(x_ptr, o_ptr, y_ptr, n, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, TILE)
    x = tl.load(x_ptr + row * n + c, mask=c < n, other=0.0)
    offset = tl.load(o_ptr + c, mask=c < n, other=0.0)
    tl.store(y_ptr + row * n + c, x - tl.sum(x, axis=0) / n + offset, mask=c < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        centre_kernel[(x.numel() // n,)](x, self.offset, y, n, TILE=1024)
        return y
