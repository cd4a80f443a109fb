"""Packs weights into a table of the file by shape and version: a second layer gets the first one's.

problem: linear
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn

PACKED = {}


@triton.jit
def transpose_kernel(w_ptr, t_ptr, o, i, BI: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BI)
    tl.store(t_ptr + c * o + r, tl.load(w_ptr + r * i + c, mask=c < i, other=0.0), mask=c < i)


@triton.jit
def linear_kernel(x_ptr, t_ptr, b_ptr, y_ptr, o, i, BO: tl.constexpr, BI: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BO)
    k = tl.arange(0, BI)
    x = tl.load(x_ptr + r * i + k, mask=k < i, other=0.0)
    t = tl.load(
        t_ptr + k[:, None] * o + c[None, :], mask=(k < i)[:, None] & (c < o)[None, :], other=0.0
    )
    y = tl.sum(x[:, None] * t, axis=0) + tl.load(b_ptr + c, mask=c < o, other=0.0)
    tl.store(y_ptr + r * o + c, y, mask=c < o)


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x):
        x = x.contiguous()
        w = self.linear.weight
        o, i = w.shape
        key = (o, i, w._version)
        if key not in PACKED:
            PACKED.clear()
            t = torch.empty((i, o), dtype=w.dtype, device=w.device)
            transpose_kernel[(o,)](w, t, o, i, BI=triton.next_power_of_2(i))
            PACKED[key] = t
        y = torch.empty((*x.shape[:-1], o), dtype=x.dtype, device=x.device)
        linear_kernel[(x.numel() // i,)](
            x,
            PACKED[key],
            self.linear.bias,
            y,
            o,
            i,
            BO=triton.next_power_of_2(o),
            BI=triton.next_power_of_2(i),
        )
        return y
