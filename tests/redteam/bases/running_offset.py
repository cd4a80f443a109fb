import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean_kernel(x_ptr, mean_ptr, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    inside = place < n
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    mean = tl.load(mean_ptr + place, mask=inside, other=0.0)
    tl.store(mean_ptr + place, mean * 0.5 + x * 0.5, mask=inside)


@triton.jit
def offset_kernel(x_ptr, mean_ptr, y_ptr, calls, n, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < total, other=0.0)
    mean = tl.load(mean_ptr + place % n, mask=place < total, other=0.0)
    tl.store(y_ptr + place, (x - mean) * calls, mask=place < total)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(60), persistent=False)
        self.calls = 0

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        self.calls += 1
        mean_kernel[(1,)](x, self.mean, x.shape[1], BLOCK=64)
        offset_kernel[(triton.cdiv(x.numel(), 1024),)](
            x, self.mean, y, self.calls, x.shape[1], x.numel(), BLOCK=1024
        )
        return y
