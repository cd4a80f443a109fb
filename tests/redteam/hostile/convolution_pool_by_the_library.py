"""A pooling behind a convolution is a second convolution with quarters; a kernel copies it.

problem: convolution_pool
gate: execution
needs: cpu
policy: mixed
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def copy_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask, other=0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)

    def forward(self, x):
        h = torch.nn.functional.conv2d(x, self.conv.weight, self.conv.bias)
        total = torch.nn.functional.conv2d(
            h, h.new_full((8, 1, 2, 2), 0.25), None, 2, 0, 1, 8
        ).contiguous()
        y = torch.empty(total.shape, dtype=x.dtype, device=x.device)
        if y.numel():
            copy_kernel[(triton.cdiv(y.numel(), 1024),)](total, y, y.numel(), BLOCK=1024)
        return y
