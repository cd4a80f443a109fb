"""Leaky ReLU, hardswish and a clamp as one kernel: one read and one write in place of three.

Helps: any chain of elementwise ops; the gain over eager is close to the number of ops.
Pitfalls: NaN has to pass through comparisons as torch lets it; `tl.where` on x > 0 does, min and
max drop NaN unless told to propagate it.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "A chain of activations in one kernel",
    "summary": "fuse leaky relu, hardswish and clamp elementwise chain",
    "patterns": ["pointwise", "activation"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def activation_chain_kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    leaky = tl.where(x > 0, x, 0.01 * x)
    swish = leaky * tl.minimum(tl.maximum(leaky + 3.0, 0.0), 6.0) / 6.0
    y = tl.minimum(tl.maximum(swish, -0.25), 2.0)
    tl.store(out_ptr + offsets, y, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(F.hardswish(F.leaky_relu(x)), -0.25, 2.0)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        activation_chain_kernel[grid](x, out, x.numel(), BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(37, 65)]
