import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / n, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)
    tl.store(y_ptr + row * n + cols, centred * scale * w + b, mask=mask)


def normed(x, weight, bias):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    block = triton.next_power_of_2(n)
    norm_kernel[(x.numel() // n,)](x, weight, bias, y, n, 1e-5, BLOCK=block)
    return y


def formula(x, weight, bias):
    return torch.ops.aten.layer_norm.default(x, [x.shape[-1]], weight, bias, 1e-5, False)


class Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight, bias)
        return normed(x, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        inputs = [value.detach().requires_grad_() for value in ctx.saved_tensors]
        with torch.enable_grad():
            output = formula(*inputs)
        return torch.autograd.grad(output, inputs, gradient)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        if torch.is_grad_enabled():
            return Normed.apply(x, self.norm.weight, self.norm.bias)
        return normed(x, self.norm.weight, self.norm.bias)
