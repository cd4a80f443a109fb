import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layernorm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    d = tl.where(mask, x - mean, 0.0)
    var = tl.sum(d * d, axis=0) / n
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)
    tl.store(y_ptr + row * n + cols, d / tl.sqrt(var + eps) * w + b, mask=mask)


def layernorm(x, weight, bias, eps):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    grid = (x.numel() // n,)
    layernorm_kernel[grid](x, weight, bias, y, n, eps, BLOCK=triton.next_power_of_2(n))
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return layernorm(x, self.norm.weight, self.norm.bias, self.norm.eps)
