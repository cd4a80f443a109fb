"""The backward pass detaches what it saved: g * 3x*x is right, its own derivative (gradient
penalties) lacks the part through x.

problem: second_derivative_lost
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def fwd(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    tl.store(y_ptr + i, x * x * x, mask=m)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        fwd[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x = x.detach()
        return 3.0 * x * x * g


class ModelNew(nn.Module):
    def forward(self, x):
        return Cube.apply(x)
