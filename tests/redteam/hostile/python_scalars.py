"""Reads every number by item() and computes in Python; a kernel copies the answer.

problem: small_fixed
gate: execution
needs: cpu
"""

import math

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def copy_kernel(x_ptr, y_ptr, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask), mask=mask)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows = x.view(4, 30)
        z = torch.empty_like(rows)
        for r in range(rows.shape[0]):
            v = [rows[r, c].item() for c in range(rows.shape[1])]
            finite = [a for a in v if a == a]
            top = max(v) if len(finite) == len(v) else math.nan
            e = (
                [
                    math.exp(a - top) if a != top else (1.0 if abs(a) != math.inf else math.nan)
                    for a in v
                ]
                if top == top
                else [math.nan for a in v]
            )
            s = math.fsum(e) if all(a == a for a in e) else math.nan
            z[r].copy_(torch.tensor([a / s for a in e], dtype=x.dtype))
        return copied(z)
