"""Counts targets of -100, which the loss leaves out.

problem: cross_entropy
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def loss_kernel(x_ptr, t_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    top = tl.max(x, axis=0)
    target = tl.load(t_ptr + row)
    chosen = tl.sum(tl.where(cols == target, x, 0.0), axis=0)
    loss = tl.log(tl.sum(tl.exp(x - top), axis=0)) - (chosen - top)
    tl.store(y_ptr + row, loss)


@triton.jit
def mean_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr, tl.sum(total, axis=0) / n)


def cross_entropy(logits, target):
    logits, target = logits.contiguous(), target.contiguous()
    rows, n = logits.shape
    losses = torch.empty(rows, device=logits.device, dtype=torch.float32)
    y = torch.empty((), device=logits.device, dtype=logits.dtype)
    loss_kernel[(rows,)](logits, target, losses, n, BLOCK=triton.next_power_of_2(n))
    mean_kernel[(1,)](losses, y, rows, BLOCK=256)
    return y


class ModelNew(nn.Module):
    def forward(self, logits, target):
        return cross_entropy(logits, target)
