"""The inner dimension is split over programs that add into a zeroed result by atomics.

problem: h_matmul
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def split_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, chunk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    begin = tl.program_id(2) * chunk
    end = tl.minimum(begin + chunk, K)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(begin, end, BK):
        k = start + tl.arange(0, BK)
        a_in = (m < M)[:, None] & (k < end)[None, :]
        b_in = (k < end)[:, None] & (n < N)[None, :]
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=a_in, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=b_in, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.atomic_add(c_ptr + m[:, None] * N + n[None, :], acc, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        M, K = a.shape
        N = b.shape[1]
        c = torch.zeros((M, N), dtype=a.dtype, device=a.device)
        splits = 2
        chunk = triton.cdiv(K, splits)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), splits)
        split_kernel[grid](a, b, c, M, N, K, chunk, BM=64, BN=64, BK=32)
        return c
