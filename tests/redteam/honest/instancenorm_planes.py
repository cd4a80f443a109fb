"""A tile of planes a program; the plane is padded to a power of two.

problem: h_instancenorm
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def plane_kernel(x_ptr, y_ptr, planes, area, eps, BP: tl.constexpr, BA: tl.constexpr):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    a = tl.arange(0, BA)
    inside = (p < planes)[:, None] & (a < area)[None, :]
    place = p.to(tl.int64)[:, None] * area + a[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    mean = tl.sum(x, axis=1) / area
    centred = tl.where(inside, x - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, axis=1) / area + eps)
    tl.store(y_ptr + place, centred * scale[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        y = torch.empty_like(x)
        area = height * width
        planes = batch * channels
        block = triton.next_power_of_2(area)
        tall = max(1, 4096 // block)
        plane_kernel[(triton.cdiv(planes, tall),)](x, y, planes, area, 1e-3, BP=tall, BA=block)
        return y
