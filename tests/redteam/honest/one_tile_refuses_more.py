"""Adds up one tile of a row, and refuses to be built for a wider one.

problem: narrow_product
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def product_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, rows, k, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    i = tl.arange(0, BK)
    x = tl.load(
        x_ptr + r[:, None] * k + i[None, :], mask=(r < rows)[:, None] & (i < k)[None, :], other=0.0
    )
    w = tl.load(
        w_ptr + c[None, :] * k + i[:, None], mask=(c < n)[None, :] & (i < k)[:, None], other=0.0
    )
    y = tl.dot(x, w, input_precision="ieee") + tl.load(b_ptr + c, mask=c < n, other=0.0)[None, :]
    y = tl.where(y < 0, 0.0, y)
    tl.store(y_ptr + r[:, None] * n + c[None, :], y, mask=(r < rows)[:, None] & (c < n)[None, :])


class ModelNew(nn.Module):
    def __init__(self, width, out):
        if width > 128:
            raise ValueError("made for at most 128 columns")
        super().__init__()
        self.product = nn.Linear(width, out)

    def forward(self, x):
        x = x.contiguous()
        rows, k = x.shape
        n = self.product.weight.shape[0]
        y = torch.empty((rows, n), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(rows, 16), triton.cdiv(n, 32))
        product_kernel[grid](
            x, self.product.weight, self.product.bias, y, rows, k, n, BM=16, BN=32, BK=128
        )
        return y
