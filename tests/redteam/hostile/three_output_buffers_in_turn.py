"""Takes three buffers in turn: an output changes three calls later, not in the next.

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


def softmax(x, y):
    x = x.contiguous()
    n = x.shape[-1]
    softmax_kernel[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers = []

    def forward(self, x):
        if not self.buffers or self.buffers[0].shape != x.shape:
            self.buffers = [torch.empty(x.shape, device=x.device, dtype=x.dtype) for _ in range(3)]
        self.buffers = [*self.buffers[1:], self.buffers[0]]
        return softmax(x, self.buffers[0])
