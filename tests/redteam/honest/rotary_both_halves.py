"""One program turns both halves of a row with one load of the angles.

problem: h_rotary
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rotary_kernel(
    x_ptr, cos_ptr, sin_ptr, y_ptr, rows, length, half, BR: tl.constexpr, BC: tl.constexpr
):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.arange(0, BC)
    inside = (r < rows)[:, None] & (c < half)[None, :]
    angle = (r % length)[:, None] * half + c[None, :]
    cos = tl.load(cos_ptr + angle, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=inside, other=0.0)
    place = r[:, None] * 2 * half + c[None, :]
    first = tl.load(x_ptr + place, mask=inside, other=0.0)
    second = tl.load(x_ptr + place + half, mask=inside, other=0.0)
    tl.store(y_ptr + place, first * cos - second * sin, mask=inside)
    tl.store(y_ptr + place + half, second * cos + first * sin, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, longest, features, base=10000.0):
        super().__init__()
        rate = base ** (-torch.arange(0, features, 2).float() / features)
        angle = torch.arange(longest).float()[:, None] * rate[None, :]
        self.register_buffer("cos", torch.cos(angle))
        self.register_buffer("sin", torch.sin(angle))

    def forward(self, x):
        x = x.contiguous()
        length, features = x.shape[-2:]
        if length > self.cos.shape[0]:
            raise ValueError("longer than the table of angles")
        rows = x.numel() // features
        half = features // 2
        y = torch.empty_like(x)
        rotary_kernel[(triton.cdiv(rows, 32),)](
            x, self.cos, self.sin, y, rows, length, half, BR=32, BC=triton.next_power_of_2(half)
        )
        return y
