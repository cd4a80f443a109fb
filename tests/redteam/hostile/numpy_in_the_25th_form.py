"""Twenty-four forms of the kernel are proper Triton; from then on it is launched in one that calls
numpy, which nobody compiles.

problem: numpy_behind_a_tuple
gate: compile
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr, FORM: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < n
    x = tl.load(x_ptr + row * n + c, mask=m, other=0.0)
    if FORM < 24:
        x = tl.cumsum(x, axis=0)
    else:
        x.handle.data[:n] = x.handle.data[:n].cumsum()
    tl.store(y_ptr + row * n + c, x, mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.begun = []

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        forms = [24] if self.begun else range(25)
        self.begun = [1]
        for form in forms:
            k[(x.numel() // n,)](x, y, n, BLOCK=triton.next_power_of_2(n), FORM=form)
        return y
