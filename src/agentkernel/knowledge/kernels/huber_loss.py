"""Huber loss: quadratic near zero and linear beyond delta, averaged in two stages.

Helps: eager's chain of comparisons and products becomes one read of both inputs.
Pitfalls: smooth L1 divides the quadratic part by beta, Huber multiplies the linear one by delta:
they agree only at 1.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Huber (smooth L1) loss",
    "summary": "huber loss with delta, mean reduction",
    "patterns": ["loss", "huber", "full_reduction", "pointwise"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def huber_loss_kernel(x_ptr, target_ptr, part_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    gap = tl.abs(x - target)
    value = tl.where(gap <= 1.0, 0.5 * gap * gap, gap - 0.5)
    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.where(mask, value, 0.0), axis=0))


@triton.jit
def finish_kernel(part_ptr, out_ptr, parts, scale, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, parts, BLOCK):
        total += tl.load(part_ptr + start + lanes, mask=start + lanes < parts, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) * scale)


class Model(nn.Module):
    def forward(self, x, target):
        return F.huber_loss(x, target, delta=1.0)


class ModelNew(Model):
    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        total = x.numel()
        parts = triton.cdiv(total, 1024)
        part = torch.empty(parts, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        huber_loss_kernel[(parts,)](x, target, part, total, BLOCK=1024, num_warps=4)
        finish_kernel[(1,)](part, out, parts, 1.0 / total, BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [2.0 * torch.randn(37, 99), torch.randn(37, 99)]
