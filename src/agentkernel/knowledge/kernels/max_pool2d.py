"""2-D max pooling, one lane an output, the window unrolled.

Helps: direct pooling with neighbouring windows served by L1; fuses with what follows.
Pitfalls: padding counts as -inf, not 0; torch passes NaN on, and tl.maximum drops it unless told
to propagate.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "2-D max pooling",
    "summary": "max pooling of images, window maximum",
    "patterns": ["pool", "max_pool2d", "window"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def max_pool2d_kernel(
    x_ptr,
    out_ptr,
    height,
    width,
    out_height,
    out_width,
    total,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    column = offsets % out_width
    row = (offsets // out_width) % out_height
    plane = offsets // (out_width * out_height)
    value = tl.full((BLOCK,), -float("inf"), tl.float32)
    for i in tl.static_range(KERNEL):
        for j in tl.static_range(KERNEL):
            source = plane * height * width + (row * STRIDE + i) * width + column * STRIDE + j
            x = tl.load(x_ptr + source, mask=mask, other=0.0).to(tl.float32)
            value = tl.maximum(value, x, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out_ptr + offsets, value, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 3, 2)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        rows, columns = (height - 3) // 2 + 1, (width - 3) // 2 + 1
        out = torch.empty(batch, channels, rows, columns, dtype=x.dtype, device=x.device)
        max_pool2d_kernel[(triton.cdiv(out.numel(), 256),)](
            x,
            out,
            height,
            width,
            rows,
            columns,
            out.numel(),
            KERNEL=3,
            STRIDE=2,
            BLOCK=256,
            num_warps=4,
        )
        return out


def get_inputs():
    return [torch.randn(2, 3, 17, 21)]
