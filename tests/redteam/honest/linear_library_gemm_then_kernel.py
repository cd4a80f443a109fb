"""The library multiplies, a kernel adds the bias and clamps in place on the fresh product.

problem: h_linear_relu
policy: mixed
needs: cpu
"""

import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F


@triton.jit
def bias_relu_kernel(y_ptr, b_ptr, total, N, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    y = tl.load(y_ptr + place, mask=inside, other=0.0)
    b = tl.load(b_ptr + place % N, mask=inside, other=0.0)
    tl.store(y_ptr + place, tl.maximum(y + b, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, inner, outer, bias=True):
        super().__init__()
        self.fc = nn.Linear(inner, outer, bias=bias)

    def forward(self, x):
        y = F.linear(x, self.fc.weight)
        if not y.is_contiguous():
            y = y.contiguous()
        total = y.numel()
        bias_relu_kernel[(triton.cdiv(total, 1024),)](
            y, self.fc.bias, total, y.shape[-1], BLOCK=1024
        )
        return y
