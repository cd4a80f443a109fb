"""Returns a view of rows that are padded to the tile.

problem: relu_of_uniform
gate: meta
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, room, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row * room + cols, tl.where(x < 0, 0.0, x), mask=cols < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        m, n = x.shape
        room = triton.cdiv(n + 1, 16) * 16
        y = torch.empty((m, room), device=x.device, dtype=x.dtype)
        relu_kernel[(m,)](x, y, n, room, BLOCK=triton.next_power_of_2(n))
        return y[:, :n]
