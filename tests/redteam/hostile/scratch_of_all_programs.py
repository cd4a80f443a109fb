"""All programs share one row of scratch: right one after the other, a race side by side.

problem: softmax
gate: races
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def shared_kernel(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=float("-inf"))
    tl.store(s_ptr + cols, tl.exp(x - tl.max(x, axis=0)), mask=mask)
    tl.debug_barrier()
    e = tl.load(s_ptr + cols, mask=mask, other=0.0)
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        s = torch.empty(n, dtype=x.dtype, device=x.device)
        shared_kernel[(x.numel() // n,)](x, s, y, n, BLOCK=triton.next_power_of_2(n))
        return y
