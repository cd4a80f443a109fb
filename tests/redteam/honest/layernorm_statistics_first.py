"""One kernel leaves mean and scale of each row, a second one reads the rows again.

problem: h_layernorm
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, scale_ptr, rows, n, eps, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    x = tl.load(x_ptr + r[:, None] * n + c[None, :], mask=inside, other=0.0)
    mean = tl.sum(x, axis=1) / n
    centred = tl.where(inside, x - mean[:, None], 0.0)
    var = tl.sum(centred * centred, axis=1) / n
    tl.store(mean_ptr + r, mean, mask=r < rows)
    tl.store(scale_ptr + r, 1.0 / tl.sqrt_rn(var + eps), mask=r < rows)


@triton.jit
def apply_kernel(x_ptr, mean_ptr, scale_ptr, w_ptr, b_ptr, y_ptr, total, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    row = place // n
    col = place % n
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    mean = tl.load(mean_ptr + row, mask=inside, other=0.0)
    scale = tl.load(scale_ptr + row, mask=inside, other=0.0)
    w = tl.load(w_ptr + col, mask=inside, other=0.0)
    b = tl.load(b_ptr + col, mask=inside, other=0.0)
    tl.store(y_ptr + place, (x - mean) * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(features, eps=eps)

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        total = x.numel()
        rows = total // n
        mean = torch.empty(rows, dtype=torch.float32, device=x.device)
        scale = torch.empty_like(mean)
        y = torch.empty_like(x)
        statistics_kernel[(triton.cdiv(rows, 16),)](
            x, mean, scale, rows, n, self.ln.eps, BR=16, BC=triton.next_power_of_2(n)
        )
        apply_kernel[(triton.cdiv(total, 2048),)](
            x, mean, scale, self.ln.weight, self.ln.bias, y, total, n, BLOCK=2048
        )
        return y
