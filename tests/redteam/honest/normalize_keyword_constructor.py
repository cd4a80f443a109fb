"""The constructor takes a keyword; a row is read once and scaled in registers.

problem: h_normalize
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def normalize_kernel(x_ptr, y_ptr, rows, n, eps, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    x = tl.load(x_ptr + r[:, None] * n + c[None, :], mask=inside, other=0.0)
    length = tl.sqrt_rn(tl.sum(x * x, axis=1))
    length = tl.where(length < eps, eps, length)
    y = x / length[:, None]
    tl.store(y_ptr + r[:, None] * n + c[None, :], y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, eps=1e-12):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        y = torch.empty_like(x)
        block = triton.next_power_of_2(n)
        normalize_kernel[(triton.cdiv(rows, 8),)](x, y, rows, n, self.eps, BR=8, BC=block)
        return y
