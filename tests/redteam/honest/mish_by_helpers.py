"""Own exponential, log1p and hyperbolic tangent in helper functions.

problem: h_mish
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
def tanh_near(x):
    """Hyperbolic tangent: a continued fraction near 0, elsewhere through e**(2|x|)."""
    size = tl.abs(x)
    square = x * x
    top = x * (945.0 + square * (105.0 + square))
    bottom = 945.0 + square * (420.0 + square * 15.0)
    grown = exp_near(2.0 * tl.minimum(size, 20.0))
    far = 1.0 - 2.0 / (grown + 1.0)
    return tl.where(size >= 0.5, tl.where(x < 0, -far, far), top / bottom)


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
def softplus(x):
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + log1p_unit(exp_near(-tl.abs(x)))


@triton.jit
def mish_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    tl.store(y_ptr + place, x * tanh_near(softplus(x)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        mish_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
