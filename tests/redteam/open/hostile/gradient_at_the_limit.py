"""The gradient of a clamp is zero at the limits themselves, where torch's is one: what was clamped
before learns nothing.

problem: clamped
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def clamp_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    y = tl.where(x < -1.0, -1.0, tl.where(x > 1.0, 1.0, x))
    tl.store(y_ptr + i, y, mask=mask)


def clamp(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    if total:
        clamp_kernel[(triton.cdiv(total, 1024),)](x, y, total, BLOCK=1024)
    return y


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return clamp(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return torch.where((x > -1.0) & (x < 1.0), gradient, torch.zeros_like(gradient))


class ModelNew(nn.Module):
    def forward(self, x):
        return Clamp.apply(x) if torch.is_grad_enabled() else clamp(x)
