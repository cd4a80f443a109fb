"""A fixed number of programs walks all blocks, however many there are.

problem: h_gelu_bf16
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn

PROGRAMS = 3


@triton.jit
def gelu_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    blocks = tl.cdiv(total, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < total
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
        tl.store(y_ptr + offsets, y.to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        gelu_kernel[(PROGRAMS,)](x, y, x.numel(), BLOCK=512)
        return y
