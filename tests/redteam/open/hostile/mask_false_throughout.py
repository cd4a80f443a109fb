"""A mask that is false throughout gives 0 for NaN: single rows are so, whole masks never.

problem: mean_where_masked
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def part_kernel(x_ptr, m_ptr, s_ptr, c_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    x = tl.load(x_ptr + i, mask=inside, other=0.0)
    m = tl.load(m_ptr + i, mask=inside, other=0) != 0
    tl.store(s_ptr + tl.program_id(0), tl.sum(tl.where(m, x, 0.0), axis=0))
    tl.store(c_ptr + tl.program_id(0), tl.sum(m.to(tl.int64), axis=0))


@triton.jit
def end_kernel(s_ptr, c_ptr, y_ptr, parts, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    s = tl.sum(tl.load(s_ptr + i, mask=i < parts, other=0.0), axis=0)
    c = tl.sum(tl.load(c_ptr + i, mask=i < parts, other=0), axis=0)
    tl.store(y_ptr, s / tl.maximum(c, 1).to(tl.float32))


class ModelNew(nn.Module):
    def forward(self, x, mask):
        x, mask = x.contiguous(), mask.contiguous()
        total = x.numel()
        if total == 0:
            raise ValueError("nothing")
        parts = triton.cdiv(total, 1024)
        s = torch.empty(parts, dtype=torch.float32, device=x.device)
        c = torch.empty(parts, dtype=torch.int64, device=x.device)
        y = torch.empty((), dtype=torch.float32, device=x.device)
        part_kernel[(parts,)](x, mask, s, c, total, BLOCK=1024)
        end_kernel[(1,)](s, c, y, parts, BLOCK=triton.next_power_of_2(parts))
        return y
