import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softplus_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    z = tl.exp(tl.minimum(x, 20.0))
    u = 1.0 + z
    y = tl.where(
        x > 20.0, x, tl.where(u == 1.0, z, tl.log(u) * (z / tl.where(u == 1.0, 1.0, u - 1.0)))
    )
    tl.store(y_ptr + i, tl.where(x != x, x, y), mask=mask)


@triton.jit
def backward_kernel(x_ptr, g_ptr, d_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    g = tl.load(g_ptr + i, mask=mask, other=0.0)
    tl.store(d_ptr + i, g / (1.0 + tl.exp(-x)), mask=mask)


def softplus(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    if total:
        softplus_kernel[(triton.cdiv(total, 1024),)](x, y, total, BLOCK=1024)
    return y


class Softplus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softplus(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        x, gradient = x.contiguous(), gradient.contiguous()
        d = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        total = x.numel()
        backward_kernel[(triton.cdiv(total, 1024),)](x, gradient, d, total, BLOCK=1024)
        return d


class ModelNew(nn.Module):
    def forward(self, x):
        return Softplus.apply(x) if torch.is_grad_enabled() else softplus(x)
