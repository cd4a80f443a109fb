import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scale_kernel(x_ptr, s_ptr, y_ptr, n, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0) * tl.load(s_ptr + i % n, mask=mask, other=0.0)
    tl.store(y_ptr + i, tl.where((x > 0) | (x != x), x, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        if total:
            scale_kernel[(triton.cdiv(total, 1024),)](
                x, self.scale, y, x.shape[-1], total, BLOCK=1024
            )
        return y
