"""Rotary position embedding in the half-split form, with given cosine and sine tables.

Helps: eager slices, negates, concatenates and multiplies: six passes become one read and one
write.
Pitfalls: half-split and interleaved pairs are different rotations; tables are [tokens, width / 2]
and broadcast over batch and heads; angles for long positions need fp32.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Rotary position embedding",
    "summary": "rope: rotate halves of query or key vectors by position dependent angles",
    "patterns": ["rope", "rotary", "pointwise", "broadcast"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, tokens, half, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    mask = lane < half
    token = program % tokens
    cos = tl.load(cos_ptr + token * half + lane, mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * half + lane, mask=mask, other=0.0).to(tl.float32)
    base = program * 2 * half + lane
    left = tl.load(x_ptr + base, mask=mask, other=0.0).to(tl.float32)
    right = tl.load(x_ptr + base + half, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + base, left * cos - right * sin, mask=mask)
    tl.store(out_ptr + base + half, right * cos + left * sin, mask=mask)


class Model(nn.Module):
    def forward(self, x, cos, sin):
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class ModelNew(Model):
    def forward(self, x, cos, sin):
        x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
        tokens, width = x.shape[-2:]
        out = torch.empty_like(x)
        rope_kernel[(x.numel() // width,)](
            x,
            cos,
            sin,
            out,
            tokens,
            width // 2,
            BLOCK=triton.next_power_of_2(width // 2),
            num_warps=2,
        )
        return out


def get_inputs():
    angle = torch.randn(9, 20)
    return [torch.randn(2, 3, 9, 40), angle.cos(), angle.sin()]
