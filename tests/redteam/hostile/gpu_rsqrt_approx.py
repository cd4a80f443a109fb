"""Takes roots from rsqrt.approx.ftz, which knows no subnormal sum and makes it infinite.

problem: gpu_p8_norm
gate: correctness
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def inverse_root(x):
    return tl.inline_asm_elementwise(
        "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def norm_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0)
    square = x * x
    fourth = square * square
    total = tl.sum(fourth * fourth, axis=0)
    quarter = total * inverse_root(total)
    quarter = quarter * inverse_root(quarter)
    y = x * inverse_root(quarter)
    tl.store(out_ptr + row * cols + col, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty_like(x)
        norm_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
