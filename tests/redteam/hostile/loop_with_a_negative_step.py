"""Counts down by a step that is no constant: compiled loops never run.

problem: loop_with_a_negative_step
gate: run
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sum_kernel(x_ptr, y_ptr, n, step):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for j in range(n - 1, -1, step):
        total += tl.load(x_ptr + row * n + j)
    tl.store(y_ptr + row, total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        if y.numel():
            sum_kernel[(y.numel(),)](x, y, n, -1)
        return y
