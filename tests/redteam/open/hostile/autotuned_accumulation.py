"""Autotunes a kernel that adds by atomics, with no reset_to_zero: on a GPU every trial run of the
tuner adds to the first answer; the interpreter tries nothing out.

problem: row_sum
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + c, mask=c < n, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        y = torch.zeros(x.shape[:-1], dtype=x.dtype, device=x.device)
        k[lambda meta: (y.numel(), triton.cdiv(n, meta["BLOCK"]))](x, y, n)
        return y
