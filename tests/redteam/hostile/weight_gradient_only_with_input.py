"""The weight's gradient is worked out only where the input's is wanted too: a first layer learns
nothing (zeros).

problem: weight_gradient_only_with_input
gate: correctness
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def fwd(x_ptr, w_ptr, y_ptr, n, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = i < total
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    w = tl.load(w_ptr + i % n, mask=m, other=0.0)
    tl.store(y_ptr + i, x * w, mask=m)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        x = x.contiguous()
        ctx.save_for_backward(x, w)
        y = torch.empty_like(x)
        fwd[(triton.cdiv(x.numel(), 1024),)](x, w, y, x.shape[-1], x.numel(), BLOCK=1024)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            return g * w, (g * x).reshape(-1, w.numel()).sum(0)
        return None, torch.zeros_like(w)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return Scale.apply(x, self.weight)
