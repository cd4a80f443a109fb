"""Tile sizes and the rounding point are module constants of type tl.constexpr.

problem: h_rmsnorm_fp16
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = tl.constexpr(8)
NARROW = tl.constexpr(tl.float16)


@triton.jit
def rms_kernel(x_ptr, w_ptr, y_ptr, rows, n, eps, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    place = r[:, None] * n + c[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt_rn(tl.sum(x * x, axis=1) / n + eps)
    w = tl.load(w_ptr + c, mask=c < n, other=0.0).to(tl.float32)
    y = (x * scale[:, None]).to(NARROW).to(tl.float32) * w[None, :]
    tl.store(y_ptr + place, y.to(NARROW), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features, dtype=torch.float16))
        self.eps = 1e-6

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        y = torch.empty_like(x)
        block = triton.next_power_of_2(n)
        rms_kernel[(triton.cdiv(rows, 8),)](x, self.weight, y, rows, n, self.eps, BLOCK=block)
        return y
