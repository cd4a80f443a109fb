"""Adds up in bfloat16, 32 lanes side by side: at short rows within the rule, at long ones it stops.

problem: sum_in_bfloat16
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.bfloat16)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * n + start + lanes, mask=start + lanes < n, other=0.0)
        total = (total + x).to(tl.bfloat16)
    tl.store(y_ptr + row, tl.sum(total.to(tl.float32), axis=0).to(tl.bfloat16))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        if y.numel():
            sum_kernel[(y.numel(),)](x, y, x.shape[-1], BLOCK=32)
        return y
