"""Two programs add to the same sums without atomics; the second one only waits a while.

problem: gpu_column_sum
gate: races
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra.cuda import globaltimer


@triton.jit
def column_sum_kernel(
    x_ptr, out_ptr, rows, cols, WAIT_NS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    half = tl.program_id(1)
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    middle = tl.cdiv(rows, 2)
    first = half * middle
    last = tl.where(half == 0, middle, rows)
    total = tl.zeros((COLS,), dtype=tl.float32)
    for start in range(first, last, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row[:, None] < last) & (col[None, :] < cols)
        x = tl.load(x_ptr + row[:, None].to(tl.int64) * cols + col[None, :], mask=mask, other=0.0)
        total += tl.sum(x, axis=0)
    if half == 1:
        begin = globaltimer()
        while globaltimer() - begin < WAIT_NS:
            pass
        total += tl.load(out_ptr + col, mask=col < cols, other=0.0)
    tl.store(out_ptr + col, total, mask=col < cols)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(cols, device=x.device)
        column_sum_kernel[(triton.cdiv(cols, 8), 2)](
            x, out, rows, cols, WAIT_NS=200_000, ROWS=128, COLS=8
        )
        return out
