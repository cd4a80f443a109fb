"""Mish, x * tanh(log(1 + exp(x))), without overflow.

Helps: eager's mish is one kernel already; the pattern matters inside a chain.
Pitfalls: exp(x) overflows past 88 in fp32: use max(x, 0) + log(1 + exp(-|x|)). log(1 + t) loses
digits for tiny t, which tanh then passes on: for x below -15 the product is x * exp(x).
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Mish by a stable softplus",
    "summary": "mish activation x tanh softplus",
    "patterns": ["pointwise", "activation"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def softplus_mish_kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tail = tl.exp(-tl.abs(x))
    softplus = tl.maximum(x, 0.0) + tl.log(1.0 + tail)
    tanh = 1.0 - 2.0 / (tl.exp(2.0 * softplus) + 1.0)
    small = x * tl.exp(tl.minimum(x, 0.0))
    y = tl.where(x < -9.0, small, x * tanh)
    tl.store(out_ptr + offsets, y, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return F.mish(x)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        softplus_mish_kernel[grid](x, out, x.numel(), BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(37, 65)]
