"""A heuristic picks the block and says whether the size divides it.

problem: h_elu
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def exp_near(x):
    """e**x to about two ulp: the whole power of two apart, the rest through ln 2 in two parts."""
    whole = tl.floor(x * 1.4426950408889634)
    rest = (x - whole * 0.693145751953125) - whole * 1.42860682030941723e-6
    value = tl.exp2(rest * 1.4426950408889634) * tl.exp2(whole)
    value = tl.where(x < -103.0, 0.0, value)
    return tl.where(x > 88.7, float("inf"), value)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(1024, triton.next_power_of_2(args["total"])),
    }
)
@triton.heuristics({"EVEN": lambda args: args["total"] % args["BLOCK"] == 0})
@triton.jit
def elu_kernel(x_ptr, y_ptr, total, alpha, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    x = tl.load(x_ptr + place) if EVEN else tl.load(x_ptr + place, mask=inside, other=0.0)
    series = x * (1.0 + x * (0.5 + x * (0.16666666666666666 + x * 0.041666666666666664)))
    below = tl.where(x > -0.03, series, exp_near(tl.minimum(x, 0.0)) - 1.0)
    y = tl.where(x > 6.0, 6.0, tl.where(x > 0, x, alpha * below))
    y = tl.where(x == x, y, x)
    if EVEN:
        tl.store(y_ptr + place, y)
    else:
        tl.store(y_ptr + place, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        total = x.numel()
        grid = lambda meta: (triton.cdiv(total, meta["BLOCK"]),)  # noqa: E731
        elu_kernel[grid](x, y, total, self.alpha)
        return y
