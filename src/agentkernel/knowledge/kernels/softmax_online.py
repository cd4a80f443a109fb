"""Softmax of long rows: a running maximum and sum in one pass, the quotient in a second.

Helps: rows past 32k elements (vocabularies, long scores): two reads and one write, the second
read from L2 where it fits. The running sum is rescaled by exp(old maximum - new maximum).
Pitfalls: keep per-lane maxima and sums in a vector and merge once at the end: a reduction a block
costs a barrier each. Start the maximum at -inf but never subtract -inf from -inf.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Softmax of rows too long for one tile",
    "summary": "online softmax with running maximum and sum for very long rows",
    "patterns": ["softmax", "row_softmax", "looped", "online"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8", "row.persistent_limit@hopper": "32768"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def softmax_online_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -3.4e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        mask = start + lanes < columns
        x = tl.load(x_ptr + row * columns + start + lanes, mask=mask, other=-float("inf")).to(
            tl.float32
        )
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
    highest = tl.max(top, axis=0)
    scale = 1.0 / tl.sum(total * tl.exp(top - highest), axis=0)
    for start in range(0, columns, BLOCK):
        mask = start + lanes < columns
        x = tl.load(x_ptr + row * columns + start + lanes, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * columns + start + lanes, tl.exp(x - highest) * scale, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty_like(x)
        softmax_online_kernel[(x.numel() // columns,)](x, out, columns, BLOCK=256, num_warps=8)
        return out


def get_inputs():
    return [torch.randn(4, 900)]
