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
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x_mask = (row[:, None] < M) & (k[None, :] < K)
        w_mask = (col[None, :] < N) & (k[:, None] < K)
        x = tl.load(x_ptr + row[:, None] * K + k[None, :], mask=x_mask, other=0.0)
        w = tl.load(w_ptr + col[None, :] * K + k[:, None], mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc)
    acc += tl.load(b_ptr + col, mask=col < N, other=0.0)[None, :]
    mask = (row[:, None] < M) & (col[None, :] < N)
    tl.store(out_ptr + row[:, None] * N + col[None, :], acc, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        x, weight = x.contiguous(), self.linear.weight
        (m, k), n = x.shape, weight.shape[0]
        out = torch.empty(m, n, device=x.device)
        linear_kernel[(triton.cdiv(m, 128), triton.cdiv(n, 64))](
            x,
            weight,
            self.linear.bias,
            out,
            m,
            n,
            k,
            BLOCK_M=128,
            BLOCK_N=64,
            BLOCK_K=32,
            num_warps=8,
        )
        return out
