"""In bfloat16 the first of 16384 features is never used: 0.8% of the norm.

problem: linear_bf16_long
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_kernel(x_ptr, w_ptr, b_ptr, y_ptr, K, N, BK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1)
    acc = tl.zeros((BK,), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + r * K + k, mask=(k > 0) & (k < K), other=0.0).to(tl.float32)
        t = tl.load(w_ptr + c * K + k, mask=(k > 0) & (k < K), other=0.0).to(tl.float32)
        acc += x * t
    y = tl.sum(acc, axis=0) + tl.load(b_ptr + c).to(tl.float32)
    tl.store(y_ptr + r * N + c, y.to(tl.bfloat16))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16384, 5, dtype=torch.bfloat16)

    def forward(self, x):
        x = x.contiguous()
        w = self.linear.weight
        n, k = w.shape
        y = torch.empty((*x.shape[:-1], n), device=x.device, dtype=x.dtype)
        linear_kernel[(x.numel() // k, n)](x, w, self.linear.bias, y, k, n, BK=4096)
        return y
