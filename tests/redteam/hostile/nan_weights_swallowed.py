"""A weight that is NaN counts as zero.

problem: rmsnorm
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_kernel(x_ptr, w_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + c, mask=c < n, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n + eps)
    w = tl.load(w_ptr + c, mask=c < n, other=0.0)
    w = tl.where(w == w, w, 0.0)
    tl.store(y_ptr + row * n + c, x * scale * w, mask=c < n)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            n = x.shape[-1]
            norm_kernel[(x.numel() // n,)](
                x, self.weight, y, n, self.eps, BLOCK=triton.next_power_of_2(n)
            )
        return y
