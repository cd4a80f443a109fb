"""Leaves the running mean as it was.

Eval mode only: training mode computes something else. Forward only: no gradients are recorded.
Inputs: x float32[33, 48].
"""

import torch
import triton
import triton.language as tl
from torch import nn

VERIFIED = "this drop-in was verified for x float32[33, 48]; use the original module for others"


@triton.jit
def mul_mean_add_kernel(x_ptr, avg_ptr, gain_ptr, output_ptr, XBLOCK: tl.constexpr):
    """Fused: mul, mean, add, sub."""
    R0_BLOCK: tl.constexpr = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < 48
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < 33
    x = tl.load(
        x_ptr + (xindex + 48 * r0_index),
        r0_mask & xmask,
        eviction_policy="evict_first",
        other=0.0,
    )
    avg = tl.load(avg_ptr + xindex, xmask)
    gain = tl.load(gain_ptr + xindex, xmask, eviction_policy="evict_last")
    chosen = tl.where(r0_mask & xmask, x, 0)
    row_sum = tl.sum(chosen, 1)[:, None].to(tl.float32)
    constant = tl.full([1, 1], 0.1, tl.float32)
    value = tl.fma(row_sum / 33.0, constant, avg * 0.9)
    product = (x - value) * gain
    tl.store(output_ptr + (xindex + 48 * r0_index), product, r0_mask & xmask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("avg", torch.zeros(48), persistent=False)
        self.gain = nn.Parameter(torch.ones(48))

    def forward(self, x):
        if x.dtype != torch.float32 or x.ndim != 2 or x.shape[0] != 33 or x.shape[1] != 48:
            raise ValueError(f"x is {x.dtype}{list(x.shape)}; {VERIFIED}")
        x = x.contiguous()
        output = torch.empty((33, 48), device=x.device, dtype=torch.float32)
        mul_mean_add_kernel[(48,)](
            x,
            self.avg,
            self.gain,
            output,
            XBLOCK=1,
            num_warps=2,
            num_stages=1,
        )
        return output
