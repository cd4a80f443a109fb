"""model.scale is a property that hands out a copy of the weight: what is written to it, as nn.init
does, is lost.

problem: scale_relu
gate: load
needs: cpu
"""

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


def scaled(x, scale):
    x = x.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    if total:
        scale_kernel[(triton.cdiv(total, 1024),)](x, scale, y, x.shape[-1], total, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self._parameters["scale"] = nn.Parameter(torch.ones(features))

    @property
    def scale(self):
        return self._parameters["scale"].detach().clone()

    def forward(self, x):
        return scaled(x, self._parameters["scale"])
