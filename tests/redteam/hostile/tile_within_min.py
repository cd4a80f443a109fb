"""One tile for a row, of at most 1024: a limit inside min() is not read.

problem: softmax
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, SAFE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=-float("inf"))
    if SAFE:
        x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=mask)


def softmax(x, safe):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    if x.numel():
        softmax_kernel[(x.numel() // n,)](
            x, y, n, SAFE=safe, BLOCK=min(triton.next_power_of_2(n), 1024)
        )
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x, True)
