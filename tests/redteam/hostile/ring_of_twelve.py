"""Hands out twelve output buffers a shape in turn: an answer changes twelve calls later.

problem: softmax
gate: run
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ring = {}
        self.turn = {}

    def forward(self, x):
        x = x.contiguous()
        key = tuple(x.shape)
        if key not in self.ring:
            self.ring[key] = [torch.empty_like(x) for _ in range(12)]
            self.turn[key] = 0
        y = self.ring[key][self.turn[key] % 12]
        self.turn[key] += 1
        n = x.shape[-1]
        softmax_kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
