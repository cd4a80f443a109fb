import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    m,
    n,
    k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        ks = start + tl.arange(0, BK)
        x_mask = (rows[:, None] < m) & (ks[None, :] < k)
        w_mask = (cols[None, :] < n) & (ks[:, None] < k)
        x = tl.load(x_ptr + rows[:, None] * k + ks[None, :], mask=x_mask, other=0.0)
        w = tl.load(w_ptr + cols[None, :] * k + ks[:, None], mask=w_mask, other=0.0)
        acc += tl.dot(x, w, input_precision="ieee")
    bias = tl.load(b_ptr + cols, mask=cols < n, other=0.0)
    where = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(y_ptr + rows[:, None] * n + cols[None, :], acc + bias[None, :], mask=where)


def linear(x, weight, bias):
    x = x.contiguous()
    m, k = x.shape
    n = weight.shape[0]
    y = torch.empty((m, n), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    linear_kernel[grid](x, weight, bias, y, m, n, k, BM=32, BN=32, BK=32)
    return y


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return linear(x, self.linear.weight, self.linear.bias)
