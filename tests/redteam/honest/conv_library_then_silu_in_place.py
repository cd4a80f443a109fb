"""cuDNN convolves, a kernel applies SiLU in place in the order in which the result lies.

problem: h_g_conv_bf16
policy: mixed
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def exp_near(x):
    """e**x to about two ulp: the whole power of two apart, the rest through ln 2 in two parts."""
    whole = tl.floor(x * 1.4426950408889634)
    rest = (x - whole * 0.693145751953125) - whole * 1.42860682030941723e-6
    value = tl.exp2(rest * 1.4426950408889634) * tl.exp2(whole)
    value = tl.where(x < -103.0, 0.0, value)
    return tl.where(x > 88.7, float("inf"), value)


@triton.jit
def silu_kernel(y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + place, mask=place < total, other=0.0).to(tl.float32)
    y = y / (1.0 + exp_near(-y))
    tl.store(y_ptr + place, y.to(tl.bfloat16), mask=place < total)


class ModelNew(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        y = self.conv(x)
        dense = y.is_contiguous() or y.is_contiguous(memory_format=torch.channels_last)
        if not dense:
            y = y.contiguous()
        silu_kernel[(triton.cdiv(y.numel(), 2048),)](y, y.numel(), BLOCK=2048)
        return y
