"""An autotuner with one configuration, which needs no measuring.

problem: h_affine_relu
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.autotune(configs=[triton.Config({"BLOCK": 1024}, num_warps=4)], key=["total"])
@triton.jit
def affine_relu_kernel(x_ptr, scale_ptr, shift_ptr, y_ptr, total, features, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    scale = tl.load(scale_ptr + place % features, mask=inside, other=0.0)
    shift = tl.load(shift_ptr + place % features, mask=inside, other=0.0)
    positive = tl.maximum(x * scale + shift, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + place, positive, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.shift = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()

        def grid(meta):
            return (triton.cdiv(total, meta["BLOCK"]),)

        affine_relu_kernel[grid](x, self.scale, self.shift, y, total, x.shape[-1])
        return y
