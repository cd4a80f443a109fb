"""Eight-bit integers widened in the kernel.

problem: h_dequant
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def dequant_kernel(q_ptr, s_ptr, y_ptr, n, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    q = tl.load(q_ptr + place, mask=inside, other=0).to(tl.float32)
    scale = tl.load(s_ptr + place // n, mask=inside, other=0.0)
    tl.store(y_ptr + place, (q * scale).to(tl.float16), mask=inside)


class ModelNew(nn.Module):
    def forward(self, q, scale):
        q, scale = q.contiguous(), scale.contiguous()
        y = torch.empty(q.shape, dtype=torch.float16, device=q.device)
        total = q.numel()
        dequant_kernel[(triton.cdiv(total, 1024),)](q, scale, y, q.shape[1], total, BLOCK=1024)
        return y
