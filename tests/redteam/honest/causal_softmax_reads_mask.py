"""Keeps the original's boolean buffer and reads it, though a comparison would do.

problem: h_causal_softmax
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def exp_near(x):
    """e**x to about two ulp: the whole power of two apart, the rest through ln 2 in two parts."""
    whole = tl.floor(x * 1.4426950408889634)
    rest = (x - whole * 0.693145751953125) - whole * 1.42860682030941723e-6
    value = tl.exp2(rest * 1.4426950408889634) * tl.exp2(whole)
    value = tl.where(x < -103.0, 0.0, value)
    return tl.where(x > 88.7, float("inf"), value)


@triton.jit
def masked_softmax_kernel(x_ptr, mask_ptr, y_ptr, n, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < n)[:, None] & (c < n)[None, :]
    base = tl.program_id(1) * n * n
    place = r[:, None] * n + c[None, :]
    seen = tl.load(mask_ptr + place, mask=inside, other=0) != 0
    x = tl.load(x_ptr + base + place, mask=seen & inside, other=float("-inf"))
    top = tl.max(x, axis=1)
    top = tl.where(r < n, top, 0.0)
    grown = tl.where(seen & inside, exp_near(x - top[:, None]), 0.0)
    total = tl.where(r < n, tl.sum(grown, axis=1), 1.0)
    tl.store(y_ptr + base + place, grown / total[:, None], mask=inside)


class ModelNew(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(length, length, dtype=torch.bool)))

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        y = torch.empty_like(x)
        grid = (triton.cdiv(n, 16), x.shape[0])
        block = triton.next_power_of_2(n)
        masked_softmax_kernel[grid](x, self.mask, y, n, BR=16, BC=block)
        return y
