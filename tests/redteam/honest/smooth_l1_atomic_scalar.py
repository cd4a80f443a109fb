"""All programs add to one zeroed number by atomics.

problem: h_smooth_l1
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def smooth_kernel(x_ptr, y_ptr, out_ptr, total, beta, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    y = tl.load(y_ptr + place, mask=inside, other=0.0)
    apart = tl.abs(x - y)
    loss = tl.where(apart < beta, 0.5 * apart * apart / beta, apart - 0.5 * beta)
    tl.atomic_add(out_ptr, tl.sum(loss, axis=0))


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.zeros((), dtype=x.dtype, device=x.device)
        total = x.numel()
        smooth_kernel[(triton.cdiv(total, 1024),)](x, y, out, total, self.beta, BLOCK=1024)
        return out
