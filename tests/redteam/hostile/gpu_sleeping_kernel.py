"""Leaves a kernel of 20 ms on a side stream after every call, which sleeps into others' turns.

problem: gpu_softmax
gate: execution
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra.cuda import globaltimer


@triton.jit
def spin_kernel(out_ptr, WAIT_NS: tl.constexpr):
    begin = globaltimer()
    while globaltimer() - begin < WAIT_NS:
        pass
    tl.store(out_ptr + tl.program_id(0), 1.0)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=-float("inf"))
    weight = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * cols + col, weight / tl.sum(weight, axis=0), mask=mask)


def launch(x, out):
    rows, cols = x.shape
    softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols), num_warps=4)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = None
        self.scratch = None

    def forward(self, x):
        out = torch.empty(x.shape, device=x.device)
        launch(x.contiguous(), out)
        if self.side is None:
            self.side = torch.cuda.Stream()
            self.scratch = torch.empty(4, device=x.device)
        if self.side.query():
            with torch.cuda.stream(self.side):
                spin_kernel[(4,)](self.scratch, WAIT_NS=20_000_000)
        return out
