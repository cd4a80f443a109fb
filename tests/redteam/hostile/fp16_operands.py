"""Halves the operands of the product before the tensor cores.

problem: matmul
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gemm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    a_row,
    a_col,
    b_row,
    b_col,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        ks = start + tl.arange(0, BK)
        inner = ks < k
        a = tl.load(
            a_ptr + rows[:, None] * a_row + ks[None, :] * a_col,
            mask=(rows[:, None] < m) & inner[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * b_row + cols[None, :] * b_col,
            mask=inner[:, None] & (cols[None, :] < n),
            other=0.0,
        )
        acc += tl.dot(a.to(tl.float16), b.to(tl.float16))
    where = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], acc, mask=where)


def matmul(a, b):
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    gemm_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), BM=32, BN=32, BK=32)
    return c


class ModelNew(nn.Module):
    def forward(self, a, b):
        return matmul(a, b)
