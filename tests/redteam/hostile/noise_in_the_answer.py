"""Adds a little noise to every element, other in every launch.

problem: softmax
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, seed, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0) * (1.0 + 1e-3 * tl.rand(seed, row * n + cols))
    tl.store(y_ptr + row * n + cols, y, mask=mask)


def softmax(x, seed):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    softmax_kernel[(x.numel() // n,)](x, y, n, seed, BLOCK=triton.next_power_of_2(n))
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.seed = 0

    def forward(self, x):
        self.seed += 1
        return softmax(x, self.seed)
