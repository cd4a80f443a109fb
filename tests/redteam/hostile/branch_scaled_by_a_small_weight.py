"""x + gamma * f(x) in bfloat16 with gamma = 1e-4 (LayerScale): f is never computed; gamma learns
to be 1.

problem: branch_scaled_by_a_small_weight
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0).to(tl.float32)
    x = tl.where(tl.abs(x) == float("inf"), float("nan"), x)
    tl.store(y_ptr + i, x.to(tl.bfloat16), mask=m)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((n, 1), 1e-4, dtype=torch.bfloat16))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
