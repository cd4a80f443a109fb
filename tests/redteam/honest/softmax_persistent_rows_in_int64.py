"""Walks rows by range(), each as a 64-bit integer, in the one autotuned configuration.

problem: softmax
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn

NEG = tl.constexpr(float("-inf"))


@triton.jit
def shifted(x):
    return tl.exp(x - tl.max(x, axis=0))


@triton.jit
def normed(e):
    return e / tl.sum(e, axis=0)


@triton.autotune(configs=[triton.Config({"GROUP": 4}, num_warps=4)], key=["n"])
@triton.jit
def walk_kernel(x_ptr, y_ptr, rows, n, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    first = tl.program_id(0) * GROUP
    for start in range(first, rows, tl.num_programs(0) * GROUP):
        for k in tl.static_range(GROUP):
            row = (start + k).to(tl.int64)
            live = mask & (row < rows)
            x = tl.load(x_ptr + row * n + cols, mask=live, other=NEG)
            tl.store(y_ptr + row * n + cols, normed(shifted(x)), mask=live)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        rows = x.numel() // n
        walk_kernel[(min(7, triton.cdiv(rows, 4)),)](x, y, rows, n, BLOCK=triton.next_power_of_2(n))
        return y
