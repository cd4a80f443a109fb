"""2-D average pooling, one lane an output, the window unrolled.

Helps: TorchInductor's version can be slower than eager; a direct kernel is bound by reading x
once.
Pitfalls: `count_include_pad` decides the divisor at the border. Large windows: pool rows and
columns apart, or use running sums.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "2-D average pooling",
    "summary": "average pooling of images, window mean",
    "patterns": ["pool", "avg_pool2d", "window"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def avg_pool2d_kernel(
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
    value = tl.full((BLOCK,), 0.0, tl.float32)
    for i in tl.static_range(KERNEL):
        for j in tl.static_range(KERNEL):
            source = plane * height * width + (row * STRIDE + i) * width + column * STRIDE + j
            x = tl.load(x_ptr + source, mask=mask, other=0.0).to(tl.float32)
            value += x
    tl.store(out_ptr + offsets, value / (KERNEL * KERNEL), mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 3, 2)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        rows, columns = (height - 3) // 2 + 1, (width - 3) // 2 + 1
        out = torch.empty(batch, channels, rows, columns, dtype=x.dtype, device=x.device)
        avg_pool2d_kernel[(triton.cdiv(out.numel(), 256),)](
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
