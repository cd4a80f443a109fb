import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gcd_kernel(a_ptr, b_ptr, y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + place, mask=place < total, other=0)
    b = tl.load(b_ptr + place, mask=place < total, other=0)
    while tl.max(b, axis=0) > 0:
        rest = a % tl.where(b > 0, b, 1)
        a, b = tl.where(b > 0, b, a), tl.where(b > 0, rest, 0)
    tl.store(y_ptr + place, a, mask=place < total)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = torch.empty_like(a)
        gcd_kernel[(triton.cdiv(a.numel(), 1024),)](a, b, y, a.numel(), BLOCK=1024)
        return y
