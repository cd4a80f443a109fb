"""Two hundred output buffers a shape in turn: the 200th call after writes over an answer.

problem: ring_of_two_hundred
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    x = tl.load(x_ptr + row * n + c, mask=m, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + c, e / tl.sum(e, axis=0), mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ring = {}
        self.turn = 0

    def forward(self, x):
        x = x.contiguous()
        key = tuple(x.shape)
        if key not in self.ring:
            self.ring[key] = [torch.empty_like(x) for _ in range(200)]
        self.turn = (self.turn + 1) % 200
        y = self.ring[key][self.turn]
        n = x.shape[-1]
        k[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
        return y
