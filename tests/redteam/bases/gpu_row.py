import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def inverse(x):
    return tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def norm_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0)
    square = x * x
    fourth = square * square
    share = inverse(tl.sum(fourth * fourth, axis=0))
    y = x * tl.sqrt(tl.sqrt(tl.sqrt(share)))
    tl.store(out_ptr + row * cols + col, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty_like(x)
        norm_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
