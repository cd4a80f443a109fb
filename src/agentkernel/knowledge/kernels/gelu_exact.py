"""Exact GELU, x * Phi(x), through erf in fp32.

Helps: as the end of a longer fused chain; alone it runs at copy speed in eager too. Half inputs
are widened to fp32 in registers, so accuracy is that of the store.
Pitfalls: the tanh form is another function (differences up to 1e-3): keep the one the module
names.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "GELU with erf",
    "summary": "gaussian error linear unit activation, exact erf form",
    "patterns": ["pointwise", "activation"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def gelu_exact_kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + offsets, y, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        gelu_exact_kernel[grid](x, out, x.numel(), BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(37, 65)]
