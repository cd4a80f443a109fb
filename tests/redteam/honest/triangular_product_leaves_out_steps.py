"""Steps of K past the diagonal and tiles below it are left out, whatever NaN lies there.

problem: triangular_product
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def triangle_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    rows = tile_m * BLOCK + tl.arange(0, BLOCK)
    cols = tile_n * BLOCK + tl.arange(0, BLOCK)
    end = tl.where(tile_n < tile_m, 0, tl.minimum(K, (tile_m + 1) * BLOCK))
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, end, BLOCK):
        ks = start + tl.arange(0, BLOCK)
        kept = (rows < M)[:, None] & (ks < K)[None, :] & (ks[None, :] <= rows[:, None])
        a = tl.load(a_ptr + rows.to(tl.int64)[:, None] * K + ks[None, :], mask=kept, other=0.0)
        inside = (ks < K)[:, None] & (cols < N)[None, :]
        b = tl.load(b_ptr + ks.to(tl.int64)[:, None] * N + cols[None, :], mask=inside, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    acc = tl.where(cols[None, :] > rows[:, None], acc, 0.0)
    tile = rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(c_ptr + tile, acc, mask=(rows < M)[:, None] & (cols < N)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise RuntimeError("two matrices")
        a, b = a.contiguous(), b.contiguous()
        c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 16))
        if c.numel():
            triangle_kernel[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], BLOCK=16)
        return c
