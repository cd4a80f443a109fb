import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, seed_ptr, y_ptr, p, total, DROP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    y = tl.where(x > 0, x, tl.where(x != x, x, 0.0))
    if DROP:
        kept = tl.rand(tl.load(seed_ptr), i) >= p
        y = tl.where(kept, y / (1.0 - p), 0.0)
    tl.store(y_ptr + i, y, mask=mask)


def relu(x, p, drop):
    x = x.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    seed = torch.empty(1, dtype=torch.int64, device=x.device)
    if drop:
        seed.random_(0, 1 << 31)
    if total:
        relu_kernel[(triton.cdiv(total, 1024),)](x, seed, y, p, total, DROP=drop, BLOCK=1024)
    return y


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, drop):
        ctx.save_for_backward(x)
        return relu(x, p, drop)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x > 0), None, None


class ModelNew(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.drop = nn.Dropout(p)

    def forward(self, x):
        if torch.is_grad_enabled():
            return Relu.apply(x, self.drop.p, self.training)
        return relu(x, self.drop.p, self.training)
