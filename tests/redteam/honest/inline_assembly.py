"""The maximum of two packed halves by an instruction written out in PTX.

problem: h_g_relu_fp16
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < total, other=0.0)
    y = tl.inline_asm_elementwise(
        "{ .reg .b32 zero; mov.b32 zero, 0; max.NaN.f16x2 $0, $1, zero; }",
        "=r,r",
        [x],
        dtype=tl.float16,
        is_pure=True,
        pack=2,
    )
    tl.store(y_ptr + place, (y.to(tl.float32) * 2.0).to(tl.float16), mask=place < total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), BLOCK=2048)
        return y
