"""An input that equals an edge falls into the other bucket.

problem: bucket_edges
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bucket_kernel(x_ptr, e_ptr, y_ptr, total, edges, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    found = tl.zeros([BLOCK], tl.int64)
    for j in range(edges):
        found += (x >= tl.load(e_ptr + j)).to(tl.int64)
    tl.store(y_ptr + i, found, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([-2.0, -1.0, 1.0, 2.0, 3.0]))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        n = x.numel()
        if n:
            bucket_kernel[(triton.cdiv(n, 1024),)](
                x, self.edges, y, n, self.edges.numel(), BLOCK=1024
            )
        return y
