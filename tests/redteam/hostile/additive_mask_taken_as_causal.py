"""Takes the additive mask of the state for causal and does not read it.

problem: causal
gate: correctness
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
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=-float("inf"))
    x = tl.where(
        cols <= row % n,
        x,
        tl.where(x == float("inf"), float("nan"), tl.where(x != x, x, -float("inf"))),
    )
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.register_buffer("mask", torch.full((size, size), float("-inf")).triu(1))

    def forward(self, scores):
        if scores.shape[-1] != self.size or scores.shape[-2] != self.size:
            raise ValueError("of the module's size")
        scores = scores.contiguous()
        y = torch.empty_like(scores)
        n = self.size
        if y.numel():
            softmax_kernel[(y.numel() // n,)](scores, y, n, BLOCK=triton.next_power_of_2(n))
        return y
