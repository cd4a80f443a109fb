"""Keeps its scratch by size and device from call to call, and writes all of it each time.

problem: h_mse
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def square_kernel(x_ptr, y_ptr, part_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    y = tl.load(y_ptr + place, mask=inside, other=0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum((x - y) * (x - y), axis=0))


@triton.jit
def finish_kernel(part_ptr, out_ptr, parts, total, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    part = tl.load(part_ptr + place, mask=place < parts, other=0.0)
    tl.store(out_ptr, tl.sum(part, axis=0) / total)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = {}

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        total = x.numel()
        parts = triton.cdiv(total, 512)
        key = (parts, x.device)
        if key not in self.scratch:
            self.scratch[key] = torch.empty(parts, dtype=torch.float32, device=x.device)
        scratch = self.scratch[key]
        out = torch.empty((), dtype=x.dtype, device=x.device)
        square_kernel[(parts,)](x, y, scratch, total, BLOCK=512)
        finish_kernel[(1,)](scratch, out, parts, total, BLOCK=triton.next_power_of_2(parts))
        return out
