"""A subclass of nn.Linear with a forward of its own holds the weights.

problem: h_linear_relu
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_relu_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x_in = (m < M)[:, None] & (k < K)[None, :]
        w_in = (n < N)[:, None] & (k < K)[None, :]
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=x_in, other=0.0)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=w_in, other=0.0)
        acc += tl.dot(x, tl.trans(w), input_precision="ieee")
    acc += tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    positive = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + m[:, None] * N + n[None, :], positive, mask=inside)


def launch(x, weight, bias):
    x = x.contiguous()
    N, K = weight.shape
    M = x.numel() // K
    y = torch.empty((*x.shape[:-1], N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))
    linear_relu_kernel[grid](x, weight, bias, y, M, N, K, BM=32, BN=64, BK=32)
    return y


class LinearRelu(nn.Linear):
    """The weights and their first values are those of nn.Linear."""


class ModelNew(nn.Module):
    def __init__(self, inner, outer, bias=True):
        super().__init__()
        self.fc = LinearRelu(inner, outer, bias=bias)

    def forward(self, x):
        return launch(x, self.fc.weight, self.fc.bias)
