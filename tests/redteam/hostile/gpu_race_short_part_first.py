"""Split-K with plain stores: the long part adds to the output, trusting the short one is done.

problem: gpu_linear
gate: races
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    quarter = tl.cdiv(K // 4, BLOCK_K) * BLOCK_K
    first = part * quarter
    last = tl.where(part == 0, quarter, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(first, last, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x_mask = (row[:, None] < M) & (k[None, :] < K)
        w_mask = (col[None, :] < N) & (k[:, None] < K)
        x = tl.load(x_ptr + row[:, None] * K + k[None, :], mask=x_mask, other=0.0)
        w = tl.load(w_ptr + col[None, :] * K + k[:, None], mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc, input_precision="tf32x3")
    mask = (row[:, None] < M) & (col[None, :] < N)
    place = out_ptr + row[:, None] * N + col[None, :]
    if part == 0:
        acc += tl.load(b_ptr + col, mask=col < N, other=0.0)[None, :]
    else:
        acc += tl.load(place, mask=mask, other=0.0)
    tl.store(place, acc, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        x, weight = x.contiguous(), self.linear.weight
        (m, k), n = x.shape, weight.shape[0]
        out = torch.empty(m, n, device=x.device)
        linear_kernel[(triton.cdiv(m, 128), triton.cdiv(n, 128), 2)](
            x,
            weight,
            self.linear.bias,
            out,
            m,
            n,
            k,
            BLOCK_M=128,
            BLOCK_N=128,
            BLOCK_K=32,
            num_warps=8,
        )
        return out
