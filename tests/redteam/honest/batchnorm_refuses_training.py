"""Uses the running statistics, and says so in training mode instead of answering wrongly.

problem: h_batchnorm_relu
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def batchnorm_kernel(
    x_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, y_ptr, channels, area, total, eps, BLOCK: tl.constexpr
):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    channel = place // area % channels
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    mean = tl.load(mean_ptr + channel, mask=inside, other=0.0)
    var = tl.load(var_ptr + channel, mask=inside, other=1.0)
    w = tl.load(w_ptr + channel, mask=inside, other=0.0)
    b = tl.load(b_ptr + channel, mask=inside, other=0.0)
    y = (x - mean) * (w / tl.sqrt_rn(var + eps)) + b
    tl.store(y_ptr + place, tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x):
        if self.training:
            raise RuntimeError("for inference only")
        x = x.contiguous()
        y = torch.empty_like(x)
        _, channels, height, width = x.shape
        total = x.numel()
        batchnorm_kernel[(triton.cdiv(total, 1024),)](
            x,
            self.bn.running_mean,
            self.bn.running_var,
            self.bn.weight,
            self.bn.bias,
            y,
            channels,
            height * width,
            total,
            self.bn.eps,
            BLOCK=1024,
        )
        return y
