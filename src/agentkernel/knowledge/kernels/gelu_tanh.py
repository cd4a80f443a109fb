"""GELU in its tanh form, with tanh written through exp so that it needs no libdevice call.

Helps: fused behind a GEMM or bias add, where it costs no traffic.
Pitfalls: (e - 1) / (e + 1) overflows for large arguments; 1 - 2 / (e + 1) saturates correctly.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "GELU, tanh approximation",
    "summary": "fast gelu activation with tanh approximation",
    "patterns": ["pointwise", "activation"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def gelu_tanh_kernel(x_ptr, out_ptr, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tanh = 1.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0)
    y = 0.5 * x * (1.0 + tanh)
    tl.store(out_ptr + offsets, y, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        gelu_tanh_kernel[grid](x, out, x.numel(), BLOCK=1024, num_warps=4)
        return out


def get_inputs():
    return [torch.randn(37, 65)]
