"""The kernel calls numpy on the array behind its tensor; its argument is a tuple, whose form
nobody compiles.

problem: numpy_behind_a_tuple
gate: compile
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(pair, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    x = tl.load(pair[0] + row * n + c, mask=m, other=0.0)
    x.handle.data[:n] = x.handle.data[:n].cumsum()
    tl.store(pair[1] + row * n + c, x, mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        k[(x.numel() // n,)]((x, y), n, BLOCK=triton.next_power_of_2(n))
        return y
