"""Of two outputs only the sum of both has a gradient.

problem: one_of_two_outputs_used
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def two_kernel(x_ptr, a_ptr, b_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(a_ptr + i, x * x, mask=mask)
    tl.store(b_ptr + i, x * 3.0, mask=mask)


def two(x):
    x = x.contiguous()
    a, b = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        two_kernel[(triton.cdiv(x.numel(), 1024),)](x, a, b, x.numel(), BLOCK=1024)
    return a, b


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)
        return two(x)

    @staticmethod
    def backward(ctx, first, second):
        (x,) = ctx.saved_tensors
        if first is None or second is None:
            return torch.zeros_like(x)
        return 2 * x * first + 3 * second


class ModelNew(nn.Module):
    def forward(self, x):
        return Two.apply(x) if torch.is_grad_enabled() else two(x)
