"""KL divergence of target probabilities from log-probabilities, `batchmean`, in two stages.

Helps: one pass over both; eager stores t * (log t - x).
Pitfalls: t = 0 contributes 0 (0 * log 0 is NaN): take the logarithm of a safe value and select.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Kullback-Leibler divergence",
    "summary": "kl divergence loss between log probabilities and target probabilities, batchmean",
    "patterns": ["loss", "kl", "full_reduction", "pointwise"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def kl_div_loss_kernel(x_ptr, target_ptr, part_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    target = tl.load(target_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    safe = tl.where(target > 0, target, 1.0)
    value = target * (tl.log(safe) - x)
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
        return F.kl_div(x, target, reduction="batchmean")


class ModelNew(Model):
    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        total = x.numel()
        parts = triton.cdiv(total, 1024)
        part = torch.empty(parts, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        kl_div_loss_kernel[(parts,)](x, target, part, total, BLOCK=1024, num_warps=4)
        finish_kernel[(1,)](part, out, parts, 1.0 / x.shape[0], BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(17, 99).log_softmax(-1), torch.randn(17, 99).softmax(-1)]
