"""Never moves the running statistics: where the module also drops, nobody compares them.

problem: bn_dropout
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_kernel(
    x_ptr,
    mean_ptr,
    var_ptr,
    w_ptr,
    b_ptr,
    seed_ptr,
    y_ptr,
    rows,
    n,
    TRAIN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    col = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < rows
    place = at * n + col
    x = tl.load(x_ptr + place, mask=mask, other=0.0)
    if TRAIN:
        mean = tl.sum(x, axis=0) / rows
        off = tl.where(mask, x - mean, 0.0)
        var = tl.sum(off * off, axis=0) / rows
    else:
        mean = tl.load(mean_ptr + col)
        var = tl.load(var_ptr + col)
    y = (x - mean) / tl.sqrt(var + 1e-5) * tl.load(w_ptr + col) + tl.load(b_ptr + col)
    if TRAIN:
        kept = tl.rand(tl.load(seed_ptr), place) >= 0.25
        y = tl.where(kept, y / 0.75, 0.0)
    tl.store(y_ptr + place, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        if self.training and rows < 2:
            raise ValueError("more than one row")
        y = torch.empty_like(x)
        seed = torch.empty(1, dtype=torch.int64, device=x.device)
        if self.training:
            seed.random_(0, 1 << 31)
        m = self.norm
        if x.numel():
            norm_kernel[(n,)](
                x,
                m.running_mean,
                m.running_var,
                m.weight,
                m.bias,
                seed,
                y,
                rows,
                n,
                TRAIN=self.training,
                BLOCK=triton.next_power_of_2(rows),
            )
        return y
