"""Works on the arrays behind the interpreter's tensors: a kernel that Triton does not compile.

problem: softmax
gate: compile
needs: cpu
"""

import math

import torch
import triton
import triton.language as tl
from torch import nn


def work(x):
    data = x.handle.data
    powers = math.e ** (data.astype("float64") - data.max())
    data[:] = powers / powers.sum()


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=float("-inf"))
    work(x)
    tl.store(y_ptr + row * n + cols, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        softmax_kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
