"""PyTorch multiplies and takes the sigmoid, a kernel gates: allowed where any policy is.

problem: h_glu_any
policy: any
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gate_kernel(x_ptr, g_ptr, y_ptr, half, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    row, col = place // half, place % half
    x = tl.load(x_ptr + row * 2 * half + col, mask=inside, other=0.0)
    gate = tl.load(g_ptr + place, mask=inside, other=0.0)
    tl.store(y_ptr + place, x * gate, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.fc = nn.Linear(features, 2 * features)

    def forward(self, x):
        both = self.fc(x).contiguous()
        half = both.shape[-1] // 2
        gate = torch.sigmoid(both[..., half:]).contiguous()
        y = torch.empty_like(gate)
        total = y.numel()
        gate_kernel[(triton.cdiv(total, 1024),)](both, gate, y, half, total, BLOCK=1024)
        return y
