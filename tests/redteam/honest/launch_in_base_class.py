"""The launch stands in a base class, the settings in a dataclass.

problem: h_layernorm
needs: cpu
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import nn


@dataclass(frozen=True)
class Tile:
    rows: int
    warps: int


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, rows, n, eps, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < n)[None, :]
    place = r[:, None] * n + c[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    centred = tl.where(inside, x - (tl.sum(x, axis=1) / n)[:, None], 0.0)
    scale = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, axis=1) / n + eps)
    w = tl.load(w_ptr + c, mask=c < n, other=0.0)[None, :]
    b = tl.load(b_ptr + c, mask=c < n, other=0.0)[None, :]
    tl.store(y_ptr + place, centred * scale[:, None] * w + b, mask=inside)


class RowNorm(nn.Module):
    TILE = Tile(rows=8, warps=4)

    def normed(self, x, weight, bias, eps):
        x = x.contiguous()
        n = x.shape[-1]
        rows = x.numel() // n
        y = torch.empty_like(x)
        norm_kernel[(triton.cdiv(rows, self.TILE.rows),)](
            x,
            weight,
            bias,
            y,
            rows,
            n,
            eps,
            BR=self.TILE.rows,
            BC=triton.next_power_of_2(n),
            num_warps=self.TILE.warps,
        )
        return y


class ModelNew(RowNorm):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.ln = nn.LayerNorm(features, eps=eps)

    def forward(self, x):
        return self.normed(x, self.ln.weight, self.ln.bias, self.ln.eps)
