"""Walks a two-dimensional tensor as one flat run and finds the feature by a remainder.

problem: h_affine_relu
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def affine_relu_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, total, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < total
    feature = offsets % features
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    scale = tl.load(scale_ptr + feature, mask=inside, other=0.0)
    shift = tl.load(shift_ptr + feature, mask=inside, other=0.0)
    positive = tl.maximum(x * scale + shift, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + offsets, positive, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.shift = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        affine_relu_kernel[(triton.cdiv(total, 1024),)](
            x, self.scale, self.shift, y, total, x.shape[-1], BLOCK=1024
        )
        return y
