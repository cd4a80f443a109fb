import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pack_kernel(w_ptr, t_ptr, N, K, B: tl.constexpr):
    n = tl.program_id(0) * B + tl.arange(0, B)
    k = tl.program_id(1) * B + tl.arange(0, B)
    inside = (n < N)[:, None] & (k < K)[None, :]
    w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=inside, other=0.0)
    tl.store(t_ptr + k[None, :] * N + n[:, None], w, mask=inside)


@triton.jit
def product_kernel(
    x_ptr, t_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x_in = (m < M)[:, None] & (k < K)[None, :]
        t_in = (k < K)[:, None] & (n < N)[None, :]
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=x_in, other=0.0)
        t = tl.load(t_ptr + k[:, None] * N + n[None, :], mask=t_in, other=0.0)
        acc = tl.dot(x, t, acc, input_precision="ieee")
    acc += tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    positive = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + m[:, None] * N + n[None, :], positive, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, inner, outer, bias=True):
        super().__init__()
        self.fc = nn.Linear(inner, outer, bias=bias)
        self.packed = None
        self.packed_from = None
        self.packed_version = -1

    def pack(self):
        weight = self.fc.weight
        if self.packed_from is not weight or self.packed_version != weight._version:
            N, K = weight.shape
            self.packed = torch.empty((K, N), dtype=weight.dtype, device=weight.device)
            grid = (triton.cdiv(N, 32), triton.cdiv(K, 32))
            pack_kernel[grid](weight, self.packed, N, K, B=32)
            self.packed_from = weight
            self.packed_version = weight._version
        return self.packed

    def forward(self, x):
        x = x.contiguous()
        turned = self.pack()
        K, N = turned.shape
        M = x.shape[0]
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        product_kernel[grid](x, turned, self.fc.bias, y, M, N, K, BM=64, BN=64, BK=32)
        return y
