import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gelu_kernel(x_ptr, b_ptr, y_ptr, n, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    z = tl.load(x_ptr + i, mask=mask, other=0.0) + tl.load(b_ptr + i % n, mask=mask, other=0.0)
    y = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    tl.store(y_ptr + i, y, mask=mask)


def gelu_bias(x, bias):
    x = x.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    gelu_kernel[(triton.cdiv(total, 1024),)](x, bias, y, x.shape[-1], total, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return gelu_bias(x, self.bias)
