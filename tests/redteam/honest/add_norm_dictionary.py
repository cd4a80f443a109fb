"""Two outputs in a dictionary, written by one kernel in one pass.

problem: h_add_norm
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_norm_kernel(
    x_ptr, res_ptr, w_ptr, b_ptr, sum_ptr, y_ptr, rows, n, eps, BR: tl.constexpr, BC: tl.constexpr
):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    place = r[:, None] * n + c[None, :]
    total = tl.load(x_ptr + place, mask=inside, other=0.0)
    total += tl.load(res_ptr + place, mask=inside, other=0.0)
    tl.store(sum_ptr + place, total, mask=inside)
    mean = tl.sum(total, axis=1) / n
    centred = tl.where(inside, total - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, axis=1) / n + eps)
    w = tl.load(w_ptr + c, mask=c < n, other=0.0)[None, :]
    b = tl.load(b_ptr + c, mask=c < n, other=0.0)[None, :]
    tl.store(y_ptr + place, centred * scale[:, None] * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        total, y = torch.empty_like(x), torch.empty_like(x)
        add_norm_kernel[(triton.cdiv(rows, 8),)](
            x,
            residual,
            self.weight,
            self.bias,
            total,
            y,
            rows,
            n,
            1e-5,
            BR=8,
            BC=triton.next_power_of_2(n),
        )
        return {"sum": total, "norm": y}
