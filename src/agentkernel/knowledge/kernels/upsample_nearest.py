"""Nearest-neighbour upsampling by a factor of two, one lane an output.

Helps: the input is read from L1 four times and DRAM once; fuse the convolution's input scaling or
an activation here, before the data grows fourfold.
Pitfalls: other factors need torch's own rounding of source positions (floor of the scaled index).
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Nearest upsampling by two",
    "summary": "upsample images by nearest neighbour, repeat pixels",
    "patterns": ["upsample", "gather", "pointwise"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def upsample_nearest_kernel(x_ptr, out_ptr, height, width, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    column = offsets % (2 * width)
    row = (offsets // (2 * width)) % (2 * height)
    plane = offsets // (4 * width * height)
    source = plane * height * width + (row // 2) * width + column // 2
    tl.store(out_ptr + offsets, tl.load(x_ptr + source, mask=mask), mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return F.interpolate(x, scale_factor=2, mode="nearest")


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out = torch.empty(batch, channels, 2 * height, 2 * width, dtype=x.dtype, device=x.device)
        upsample_nearest_kernel[(triton.cdiv(out.numel(), 512),)](
            x, out, height, width, out.numel(), BLOCK=512, num_warps=4
        )
        return out


def get_inputs():
    return [torch.randn(2, 3, 9, 11)]
