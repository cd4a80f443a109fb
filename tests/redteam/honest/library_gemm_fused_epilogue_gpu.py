"""cuBLAS multiplies, one kernel adds the bias and applies ReLU in place on the product.

problem: h_g_linear_fp16
policy: mixed
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def bias_relu_kernel(y_ptr, b_ptr, total, N, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    y = tl.load(y_ptr + place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + place % N, mask=inside, other=0.0).to(tl.float32)
    positive = tl.maximum(y + b, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + place, positive.to(tl.float16), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.fc = nn.Linear(inner, outer, dtype=torch.float16)

    def forward(self, x):
        y = torch.mm(x.contiguous(), self.fc.weight.t())
        total = y.numel()
        bias_relu_kernel[(triton.cdiv(total, 2048),)](
            y, self.fc.bias, total, y.shape[1], BLOCK=2048
        )
        return y
