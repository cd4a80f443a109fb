"""torch moves the data: permute().contiguous() is a copy and free; the kernel copies it once more.

problem: h_pixel_shuffle
gate: execution
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
    tl.store(y_ptr + row * n + c, tl.load(x_ptr + row * n + c, mask=c < n), mask=c < n)


class ModelNew(nn.Module):
    def forward(self, x):
        b, c, h, w = x.shape
        z = x.reshape(b, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).contiguous()
        z = z.reshape(b, c // 4, 2 * h, 2 * w)
        y = torch.empty_like(z)
        n = z.shape[-1]
        k[(z.numel() // n,)](z, y, n, BLOCK=triton.next_power_of_2(n))
        return y
