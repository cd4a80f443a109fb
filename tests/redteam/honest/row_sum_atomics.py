"""Several programs add into one zeroed buffer by atomics: the order of the sums is open.

problem: h_row_sum
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_kernel(x_ptr, y_ptr, rows, n, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    x = tl.load(x_ptr + r[:, None] * n + c[None, :], mask=inside, other=0.0)
    tl.atomic_add(y_ptr + r, tl.sum(x, axis=1), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        y = torch.zeros(rows, dtype=x.dtype, device=x.device)
        add_kernel[(triton.cdiv(rows, 32), triton.cdiv(n, 128))](x, y, rows, n, BR=32, BC=128)
        return y
