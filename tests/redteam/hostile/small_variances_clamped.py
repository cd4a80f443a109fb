"""Variances below 0.005 are clamped.

problem: batch_norm_eval
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_kernel(x_ptr, m_ptr, v_ptr, w_ptr, b_ptr, y_ptr, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    c = i % n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    m = tl.load(m_ptr + c, mask=mask, other=0.0)
    v = tl.load(v_ptr + c, mask=mask, other=1.0)
    w = tl.load(w_ptr + c, mask=mask, other=0.0)
    b = tl.load(b_ptr + c, mask=mask, other=0.0)
    scale = 1.0 / tl.sqrt(tl.maximum(v, 0.005) + 1e-5)
    tl.store(y_ptr + i, (x - m) * scale * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        if self.training:
            raise NotImplementedError("eval mode only")
        x = x.contiguous()
        y = torch.empty_like(x)
        t = x.numel()
        if t:
            b = self.norm
            norm_kernel[(triton.cdiv(t, 1024),)](
                x, b.running_mean, b.running_var, b.weight, b.bias, y, t, x.shape[-1], BLOCK=1024
            )
        return y
