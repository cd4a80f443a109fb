"""Takes tanh and log1p from libdevice, which the interpreter does not have.

problem: h_g_tanh
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra import libdevice


@triton.jit
def tanh_log_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < total, other=0.0)
    y = libdevice.tanh(x) + libdevice.log1p(x * x)
    tl.store(y_ptr + place, y, mask=place < total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        tanh_log_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
