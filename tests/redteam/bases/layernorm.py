import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    x = tl.load(x_ptr + row * n + c, mask=m, other=0.0)
    d = tl.where(m, x - tl.sum(x, axis=0) / n, 0.0)
    s = 1.0 / tl.sqrt(tl.sum(d * d, axis=0) / n + eps)
    w = tl.load(w_ptr + c, mask=m, other=0.0)
    b = tl.load(b_ptr + c, mask=m, other=0.0)
    tl.store(y_ptr + row * n + c, d * s * w + b, mask=m)


def normed(x, weight, bias, eps):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    k[(x.numel() // n,)](x, weight, bias, y, n, eps, BLOCK=triton.next_power_of_2(n))
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return normed(x, self.norm.weight, self.norm.bias, self.norm.eps)
