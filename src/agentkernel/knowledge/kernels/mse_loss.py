"""Mean squared error in two launches: partial sums of squared differences, then their mean.

Helps: eager stores the difference and its square; here nothing but the parts is written.
Pitfalls: divide once at the end; broadcasting between prediction and target has to be resolved
first.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Mean squared error",
    "summary": "mse loss between prediction and target, mean reduction",
    "patterns": ["loss", "mse", "full_reduction", "pointwise"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def mse_loss_kernel(x_ptr, target_ptr, part_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    value = (x - target) * (x - target)
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
        return F.mse_loss(x, target)


class ModelNew(Model):
    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        total = x.numel()
        parts = triton.cdiv(total, 1024)
        part = torch.empty(parts, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        mse_loss_kernel[(parts,)](x, target, part, total, BLOCK=1024, num_warps=4)
        finish_kernel[(1,)](part, out, parts, 1.0 / total, BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(37, 99), torch.randn(37, 99)]
