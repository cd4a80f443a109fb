"""A kernel launched in a loop, writing to two scratch buffers in turns.

problem: h_layers
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_kernel(x_ptr, s_ptr, b_ptr, y_ptr, features, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    s = tl.load(s_ptr + place % features, mask=inside, other=0.0)
    b = tl.load(b_ptr + place % features, mask=inside, other=0.0)
    y = x * s + b
    tl.store(y_ptr + place, tl.where(y > 0, y, 0.1 * y), mask=inside)


class Layer(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(1.0 + 0.1 * torch.randn(features))
        self.shift = nn.Parameter(torch.zeros(features))


class ModelNew(nn.Module):
    def __init__(self, features, depth):
        super().__init__()
        self.layers = nn.ModuleList([Layer(features) for _ in range(depth)])

    def forward(self, x):
        x = x.contiguous()
        total = x.numel()
        buffers = [torch.empty_like(x), torch.empty_like(x)]
        for step, layer in enumerate(self.layers):
            y = buffers[step % 2]
            layer_kernel[(triton.cdiv(total, 1024),)](
                x, layer.scale, layer.shift, y, x.shape[-1], total, BLOCK=1024
            )
            x = y
        return x
