"""One kernel serves both layers; flags choose bias and activation.

problem: h_mlp
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def exp_near(x):
    """e**x to about two ulp: the whole power of two apart, the rest through ln 2 in two parts."""
    whole = tl.floor(x * 1.4426950408889634)
    rest = (x - whole * 0.693145751953125) - whole * 1.42860682030941723e-6
    value = tl.exp2(rest * 1.4426950408889634) * tl.exp2(whole)
    value = tl.where(x < -103.0, 0.0, value)
    return tl.where(x > 88.7, float("inf"), value)


@triton.jit
def layer_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    M,
    N,
    K,
    BIAS: tl.constexpr,
    SILU: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x_in = (m < M)[:, None] & (k < K)[None, :]
        w_in = (k < K)[:, None] & (n < N)[None, :]
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=x_in, other=0.0)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=w_in, other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    if BIAS:
        acc += tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    if SILU:
        acc = acc / (1.0 + exp_near(-acc))
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=inside)


def layer(x, weight, bias, silu):
    N, K = weight.shape
    M = x.numel() // K
    y = torch.empty((*x.shape[:-1], N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 32))
    has_bias = bias is not None
    layer_kernel[grid](x, weight, bias, y, M, N, K, BIAS=has_bias, SILU=silu, BM=64, BN=32, BK=32)
    return y


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x):
        hidden = layer(x.contiguous(), self.up.weight, self.up.bias, True)
        return layer(hidden, self.down.weight, self.down.bias, False)
