"""Binary cross-entropy on logits: max(x, 0) - x * t + log(1 + exp(-|x|)), averaged in two stages.

Helps: no sigmoid is stored, and no logarithm of a rounded probability is taken.
Pitfalls: never sigmoid first; class weights multiply the softplus term, not the whole.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Binary cross-entropy on logits",
    "summary": "bce with logits loss, numerically stable, mean",
    "patterns": ["loss", "bce", "full_reduction", "pointwise"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def bce_logits_loss_kernel(x_ptr, target_ptr, part_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    value = tl.maximum(x, 0.0) - x * target + tl.log(1.0 + tl.exp(-tl.abs(x)))
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
        return F.binary_cross_entropy_with_logits(x, target)


class ModelNew(Model):
    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        total = x.numel()
        parts = triton.cdiv(total, 1024)
        part = torch.empty(parts, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        bce_logits_loss_kernel[(parts,)](x, target, part, total, BLOCK=1024, num_warps=4)
        finish_kernel[(1,)](part, out, parts, 1.0 / total, BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(37, 99), torch.rand(37, 99)]
