"""A module of 8 x 60 numbers: torch's own softmax on each row, 60 elements a call, is under the 64
and 1,024 that are free; the kernel copies.

problem: torch_within_its_allowance
gate: execution
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    tl.store(y_ptr + row * n + c, tl.load(x_ptr + row * n + c, mask=c < n), mask=c < n)


class ModelNew(nn.Module):
    def forward(self, x):
        z = torch.empty((8, 60), dtype=x.dtype, device=x.device)
        for row, out in zip(x.reshape(8, 60), z, strict=True):
            out.copy_(torch.Tensor.softmax(row, -1))
        y = torch.empty_like(z)
        k[(8,)](z, y, 60, BLOCK=64)
        return y
