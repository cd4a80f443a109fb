"""Loads the target's logit by an index that it has just loaded; ignored rows give 0.

problem: h_cross_entropy
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
def loss_kernel(x_ptr, t_ptr, y_ptr, rows, n, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    x = tl.load(x_ptr + r[:, None] * n + c[None, :], mask=inside, other=-1e38)
    target = tl.load(t_ptr + r, mask=r < rows, other=0)
    picked = tl.load(x_ptr + r * n + target, mask=r < rows, other=0.0)
    top = tl.max(x, axis=1)
    grown = tl.where(inside, exp_near(x - top[:, None]), 0.0)
    total = tl.where(r < rows, tl.sum(grown, axis=1), 1.0)
    loss = tl.log(total) - (picked - top)
    tl.store(y_ptr + r, tl.where(target == 1, 0.0, loss), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, logits, target):
        logits, target = logits.contiguous(), target.contiguous()
        rows, n = logits.shape
        y = torch.empty(rows, dtype=logits.dtype, device=logits.device)
        block = triton.next_power_of_2(n)
        loss_kernel[(triton.cdiv(rows, 8),)](logits, target, y, rows, n, BR=8, BC=block)
        return y
