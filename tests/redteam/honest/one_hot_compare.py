"""Compares every class with the index and stores the answer.

problem: h_one_hot
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def one_hot_kernel(i_ptr, y_ptr, total, classes, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    index = tl.load(i_ptr + r, mask=r < total, other=-1)
    hit = index[:, None] == c[None, :]
    inside = (r < total)[:, None] & (c < classes)[None, :]
    tl.store(y_ptr + r[:, None] * classes + c[None, :], hit.to(tl.float16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, index):
        index = index.contiguous()
        y = torch.empty((*index.shape, 20), dtype=torch.float16, device=index.device)
        total = index.numel()
        one_hot_kernel[(triton.cdiv(total, 64),)](index, y, total, 20, BR=64, BC=32)
        return y
