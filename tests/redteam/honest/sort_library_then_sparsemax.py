"""PyTorch sorts the rows; the sums, the threshold and the projection are a kernel's.

problem: sparsemax
policy: mixed
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sparsemax_kernel(x_ptr, z_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    z = tl.load(z_ptr + row * n + cols, mask=mask, other=0.0)
    inside = mask & (1 + (cols + 1) * z > tl.cumsum(z, axis=0))
    count = tl.sum(inside.to(tl.int32), axis=0)
    total = tl.sum(tl.where(inside, z, 0.0), axis=0)
    y = x - (total - 1) / count
    y = tl.where(y < 0.0, 0.0, y)
    tl.store(y_ptr + row * n + cols, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        z = torch.ops.aten.sort.stable(x, stable=False, dim=-1, descending=True)[0].contiguous()
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        if y.numel():
            rows = y.numel() // n
            sparsemax_kernel[(rows,)](x, z, y, n, BLOCK=triton.next_power_of_2(n))
        return y
