"""Subtracts logits and normalisers, where eager takes the logarithm of a softmax: closer to fp64.

problem: h_kl
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
def kl_kernel(x_ptr, y_ptr, out_ptr, rows, n, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    x = tl.load(x_ptr + r[:, None] * n + c[None, :], mask=inside, other=-1e38)
    y = tl.load(y_ptr + r[:, None] * n + c[None, :], mask=inside, other=-1e38)
    x = (x - tl.max(x, axis=1)[:, None]).to(tl.float64)
    y = (y - tl.max(y, axis=1)[:, None]).to(tl.float64)
    ex = tl.where(inside, tl.exp(x), 0.0)
    ey = tl.where(inside, tl.exp(y), 0.0)
    sx = tl.where(r < rows, tl.sum(ex, axis=1), 1.0)
    sy = tl.where(r < rows, tl.sum(ey, axis=1), 1.0)
    apart = (y - x) - (tl.log(sy) - tl.log(sx))[:, None]
    terms = tl.where(inside & (ey > 0), ey / sy[:, None] * apart, 0.0)
    tl.store(out_ptr + r, tl.sum(terms, axis=1).to(tl.float32), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        rows, n = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(n)
        kl_kernel[(triton.cdiv(rows, 8),)](x, y, out, rows, n, BR=8, BC=block)
        return out
