"""Rounds the gate to half precision in the middle, because eager does; no copies of the halves.

problem: h_swiglu_fp16
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
def swiglu_kernel(x_ptr, y_ptr, half, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < half
    gate = tl.load(x_ptr + row * 2 * half + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * half + half + cols, mask=inside, other=0.0).to(tl.float32)
    gate = (gate / (1.0 + exp_near(-gate))).to(tl.float16).to(tl.float32)
    tl.store(y_ptr + row * half + cols, (gate * up).to(tl.float16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        half = x.shape[-1] // 2
        y = torch.empty((*x.shape[:-1], half), dtype=x.dtype, device=x.device)
        rows = y.numel() // half
        swiglu_kernel[(rows,)](x, y, half, BLOCK=triton.next_power_of_2(half))
        return y
