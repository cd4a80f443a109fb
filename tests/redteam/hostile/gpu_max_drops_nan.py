"""Takes row maxima by the GPU's max, which drops NaN where torch hands it on.

problem: gpu_row_max
gate: correctness
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_max_kernel(x_ptr, value_ptr, place_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=-float("inf"))
    peak = tl.max(x, axis=0)
    tl.store(value_ptr + row, peak)
    tl.store(place_ptr + row, tl.min(tl.where(x == peak, col, BLOCK), axis=0).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        values = torch.empty(rows, device=x.device)
        places = torch.empty(rows, dtype=torch.int64, device=x.device)
        row_max_kernel[(rows,)](x, values, places, cols, BLOCK=triton.next_power_of_2(cols))
        return values, places
