"""Sum of a whole tensor: a partial sum a program, then one program adds the parts.

Helps: fills the GPU with no atomics, so every run gives the same bits.
Pitfalls: give each program several tiles on large tensors (a loop), so that the parts stay few;
add in fp32 whatever the input.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Sum of all elements in two stages",
    "summary": "reduce a whole tensor to one scalar",
    "patterns": ["reduction", "full_reduction", "sum"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def full_sum_kernel(x_ptr, part_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    value = x
    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.where(mask, value, 0.0), axis=0))


@triton.jit
def finish_kernel(part_ptr, out_ptr, parts, scale, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, parts, BLOCK):
        total += tl.load(part_ptr + start + lanes, mask=start + lanes < parts, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) * scale)


class Model(nn.Module):
    def forward(self, x):
        return x.sum()


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        total = x.numel()
        parts = triton.cdiv(total, 1024)
        part = torch.empty(parts, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        full_sum_kernel[(parts,)](x, part, total, BLOCK=1024, num_warps=4)
        finish_kernel[(1,)](part, out, parts, 1.0, BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(37, 99)]
