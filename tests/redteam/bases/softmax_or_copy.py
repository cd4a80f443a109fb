import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    x = tl.load(x_ptr + row * n + c, mask=m, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + c, e / tl.sum(e, axis=0), mask=m)


@triton.jit
def copied(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    tl.store(y_ptr + row * n + c, tl.load(x_ptr + row * n + c, mask=c < n), mask=c < n)


class ModelNew(nn.Module):
    def forward(self, x):
        cheap = False
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        kernel = copied if cheap else k
        kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
