"""Normal noise by a sum of four uniform numbers: it has no tails.

problem: noise_of_four_uniforms
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def noise_kernel(x_ptr, seed_ptr, y_ptr, total, NOISY: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    if NOISY:
        seed = tl.load(seed_ptr)
        z = (
            tl.rand(seed, 4 * i)
            + tl.rand(seed, 4 * i + 1)
            + tl.rand(seed, 4 * i + 2)
            + tl.rand(seed, 4 * i + 3)
        )
        x += (z - 2.0) * 1.7320508
    tl.store(y_ptr + i, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        seed = torch.empty(1, dtype=torch.int64, device=x.device)
        if self.training:
            seed.random_()
        if x.numel():
            noise_kernel[(triton.cdiv(x.numel(), 1024),)](
                x, seed, y, x.numel(), NOISY=self.training, BLOCK=1024
            )
        return y
