"""The program that arrives last adds the partial sums; its counter returns to 0 for the next call.

problem: h_g_column_sum
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def column_sum_kernel(
    x_ptr,
    part_ptr,
    count_ptr,
    y_ptr,
    rows,
    cols,
    chunk,
    parts,
    BR: tl.constexpr,
    BC: tl.constexpr,
):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.program_id(1)
    begin = part * chunk
    acc = tl.zeros((BR, BC), dtype=tl.float32)
    for start in range(begin, tl.minimum(begin + chunk, rows), BR):
        r = start + tl.arange(0, BR)
        inside = (r < tl.minimum(begin + chunk, rows))[:, None] & (c < cols)[None, :]
        acc += tl.load(x_ptr + r[:, None].to(tl.int64) * cols + c[None, :], mask=inside, other=0.0)
    tl.store(part_ptr + part * cols + c, tl.sum(acc, axis=0), mask=c < cols)
    tl.debug_barrier()
    arrived = tl.atomic_add(count_ptr + tl.program_id(0), 1, sem="acq_rel", scope="gpu")
    if arrived == parts - 1:
        tl.debug_barrier()
        total = tl.zeros((BC,), dtype=tl.float64)
        for p in range(parts):
            value = tl.load(part_ptr + p * cols + c, mask=c < cols, other=0.0, cache_modifier=".cg")
            total += value.to(tl.float64)
        tl.store(y_ptr + c, total.to(tl.float32), mask=c < cols)
        tl.atomic_xchg(count_ptr + tl.program_id(0), 0, sem="relaxed", scope="gpu")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.counters = {}

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        wide = triton.cdiv(cols, 64)
        chunk = 512
        parts = max(1, triton.cdiv(rows, chunk))  # no rows: one part, of zeros
        key = (wide, x.device)
        if key not in self.counters:
            self.counters[key] = torch.zeros(wide, dtype=torch.int32, device=x.device)
        partial = torch.empty((parts, cols), dtype=torch.float32, device=x.device)
        y = torch.empty(cols, dtype=x.dtype, device=x.device)
        column_sum_kernel[(wide, parts)](
            x, partial, self.counters[key], y, rows, cols, chunk, parts, BR=32, BC=64
        )
        return y
