"""The smallest integer of eight bits, -128, counts as -127.

problem: int8_dequantise
gate: correctness
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
    q = tl.load(q_ptr + place, mask=inside, other=0).to(tl.int32)
    q = tl.maximum(q, -127).to(tl.float32)
    scale = tl.load(s_ptr + place // n, mask=inside, other=0.0)
    tl.store(y_ptr + place, q * scale, mask=inside)


class ModelNew(nn.Module):
    def forward(self, q, scale):
        q, scale = q.contiguous(), scale.contiguous()
        y = torch.empty(q.shape, dtype=torch.float32, device=q.device)
        total = q.numel()
        dequant_kernel[(triton.cdiv(total, 1024),)](q, scale, y, q.shape[1], total, BLOCK=1024)
        return y
