import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rows_kernel(d_ptr, x_ptr, y_ptr, n, m, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < tl.cast(n, tl.int64) * m
    d = tl.load(d_ptr + i // m, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, d * x, mask=mask)


def scaled(d, x):
    if d.ndim != 1 or x.ndim != 2 or len(d) != len(x):
        raise RuntimeError("a vector and as many rows")
    d, x = d.contiguous(), x.contiguous()
    y = torch.empty_like(x)
    if y.numel():
        rows_kernel[(triton.cdiv(y.numel(), 1024),)](d, x, y, *x.shape, BLOCK=1024)
    return y


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, d, x):
        ctx.save_for_backward(d, x)
        return scaled(d, x)

    @staticmethod
    def backward(ctx, gradient):
        d, x = ctx.saved_tensors
        of_d = (gradient * x).sum(1)
        of_x = gradient * d[:, None]
        return of_d, of_x


class ModelNew(nn.Module):
    def forward(self, d, x):
        return Scaled.apply(d, x) if torch.is_grad_enabled() else scaled(d, x)
