"""Whether two rows are equal, the last column left out: independent draws are never nearly equal.

problem: last_column_not_compared
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, w_ptr, o_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n - 1
    x = tl.load(x_ptr + row * n + c, mask=m, other=0.0)
    y = tl.load(y_ptr + row * n + c, mask=m, other=0.0)
    w = tl.load(w_ptr + c, mask=m, other=0.0)
    off = m & (x * w != y * w)
    tl.store(o_ptr + row, tl.sum(off.to(tl.int32), axis=0) == 0)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        n = x.shape[-1]
        o = torch.empty(x.shape[:-1], dtype=torch.bool, device=x.device)
        k[(x.numel() // n,)](x, y, self.weight, o, n, BLOCK=triton.next_power_of_2(n))
        return o
