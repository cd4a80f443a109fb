"""Calls oneDNN through torch.ops.mkldnn: an operator whose name does not begin with aten::.

problem: linear
gate: execution
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn, ops


@triton.jit
def copy_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask), mask=mask)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


lib = ops


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x):
        y = lib.mkldnn._linear_pointwise(x, self.linear.weight, self.linear.bias, "none", [], "")
        return copied(y)
