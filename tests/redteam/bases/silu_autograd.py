import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def silu_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, x / (1 + tl.exp(-x)), mask=mask)


def silu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    if total:
        silu_kernel[(triton.cdiv(total, 1024),)](x, y, total, BLOCK=1024)
    return y


class Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return silu(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * s * (1 + x * (1 - s))


class ModelNew(nn.Module):
    def forward(self, x):
        return Silu.apply(x) if torch.is_grad_enabled() else silu(x)
