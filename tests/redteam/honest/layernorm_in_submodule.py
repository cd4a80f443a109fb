"""The weights stay in an nn.LayerNorm that is never called.

problem: h_layernorm
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, rows, n, eps, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    place = r.to(tl.int64)[:, None] * n + c[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    mean = tl.sum(x, axis=1) / n
    centred = tl.where(inside, x - mean[:, None], 0.0)
    var = tl.sum(centred * centred, axis=1) / n
    scale = 1.0 / tl.sqrt_rn(var + eps)
    w = tl.load(w_ptr + c, mask=c < n, other=0.0)
    b = tl.load(b_ptr + c, mask=c < n, other=0.0)
    y = centred * scale[:, None] * w[None, :] + b[None, :]
    tl.store(y_ptr + place, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(features, eps=eps)

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        y = torch.empty_like(x)
        block = triton.next_power_of_2(n)
        norm_kernel[(triton.cdiv(rows, 8),)](
            x, self.ln.weight, self.ln.bias, y, rows, n, self.ln.eps, BR=8, BC=block
        )
        return y
