"""The library multiplies and adds, a kernel scales into memory of its own.

problem: linear_scaled
needs: cpu
policy: mixed
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F


@triton.jit
def scaled_kernel(x_ptr, s_ptr, y_ptr, total, N, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask)
    tl.store(y_ptr + i, x * tl.load(s_ptr + i % N, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.fc = nn.Linear(inner, outer)
        self.scale = nn.Parameter(torch.randn(outer))

    def forward(self, x):
        x = F.linear(x, self.fc.weight, self.fc.bias).contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            grid = (triton.cdiv(total, 1024),)
            scaled_kernel[grid](x, self.scale, y, total, y.shape[-1], BLOCK=1024)
        return y
