"""Broadcast a per-channel scale and shift over a [rows, channels] tensor in one pass.

Helps: eager launches one kernel an op and stores every intermediate; here x is read once and
stored once, and the two vectors come from L2. Take the column by a remainder of the flat offset.
Pitfalls: integer remainders cost instructions (invisible behind DRAM, visible in L2-sized
problems); offsets of tensors past 2**31 elements need int64.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Scale and shift a channel, broadcast over rows",
    "summary": "elementwise multiply add with a channel vector broadcast over rows",
    "patterns": ["pointwise", "broadcast"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def scale_shift_kernel(x_ptr, scale_ptr, shift_ptr, out_ptr, total, channels, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    column = offsets % channels
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(scale_ptr + column, mask=mask, other=0.0).to(tl.float32)
    shift = tl.load(shift_ptr + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, x * scale + shift, mask=mask)


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.shift = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return x * self.scale + self.shift


class ModelNew(Model):
    def forward(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        scale_shift_kernel[grid](
            x, self.scale, self.shift, out, x.numel(), x.shape[-1], BLOCK=1024, num_warps=4
        )
        return out


def get_inputs():
    return [torch.randn(33, 70)]


def get_init_inputs():
    return [70]
