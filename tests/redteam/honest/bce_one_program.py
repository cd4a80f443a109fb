"""A single program loops over everything; the constructor builds nothing.

problem: h_bce_logits
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
def log1p_unit(u):
    """log(1 + u) for u in [0, 1], by the series of 2 artanh(u / (2 + u))."""
    s = u / (2.0 + u)
    q = s * s
    p = 0.0588235294117647 * q + 0.0666666666666667
    p = p * q + 0.0769230769230769
    p = p * q + 0.0909090909090909
    p = p * q + 0.111111111111111
    p = p * q + 0.142857142857143
    p = p * q + 0.2
    p = p * q + 0.333333333333333
    return 2.0 * (s + s * q * p)


@triton.jit
def bce_kernel(x_ptr, t_ptr, out_ptr, total, BLOCK: tl.constexpr):
    found = tl.zeros((BLOCK,), dtype=tl.float64)
    for start in range(0, total, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place < total
        x = tl.load(x_ptr + place, mask=inside, other=0.0)
        t = tl.load(t_ptr + place, mask=inside, other=0.0)
        rest = log1p_unit(exp_near(-tl.abs(x)))
        loss = (1.0 - t) * x + tl.maximum(-x, 0.0, propagate_nan=tl.PropagateNan.ALL) + rest
        found += tl.where(inside, loss, 0.0).to(tl.float64)
    tl.store(out_ptr, (tl.sum(found, axis=0) / total).to(tl.float32))


class ModelNew(nn.Module):
    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        out = torch.empty((), dtype=x.dtype, device=x.device)
        bce_kernel[(1,)](x, target, out, x.numel(), BLOCK=1024)
        return out
