"""One program hands a row's maximum to another through a plain flag, with no fence and no atomic.

problem: gpu_softmax
gate: races
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, out_ptr, peak_ptr, flag_ptr, rows, cols, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    row = (program % rows).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=-float("inf"))
    if program < rows:
        tl.store(peak_ptr + row, tl.max(x, axis=0))
        tl.store(flag_ptr + row, 1)
    else:
        tries = 0
        while (tl.load(flag_ptr + row, volatile=True) == 0) & (tries < 1000000):
            tries += 1
        weight = tl.exp(x - tl.load(peak_ptr + row))
        tl.store(out_ptr + row * cols + col, weight / tl.sum(weight, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty_like(x)
        peak = torch.empty(rows, device=x.device)
        flag = torch.zeros(rows, dtype=torch.int32, device=x.device)
        block = triton.next_power_of_2(cols)
        softmax_kernel[(2 * rows,)](x, out, peak, flag, rows, cols, BLOCK=block)
        return out
