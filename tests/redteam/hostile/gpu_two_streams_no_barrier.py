"""Statistics on one stream, their use on another, both joined at the end but not to each other.

problem: gpu_layer_norm
gate: races
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / cols
    centred = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / cols + eps))


@triton.jit
def normalise_kernel(
    x_ptr, mean_ptr, rstd_ptr, weight_ptr, bias_ptr, out_ptr, cols, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0)
    scaled = (x - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row)
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + col, mask=mask, other=0.0)
    tl.store(out_ptr + row * cols + col, scaled * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.streams = None

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        block = triton.next_power_of_2(cols)
        out = torch.empty_like(x)
        mean = torch.empty(rows, device=x.device)
        rstd = torch.empty(rows, device=x.device)
        if self.streams is None:
            self.streams = torch.cuda.Stream(), torch.cuda.Stream()
        first, second = self.streams
        current = torch.cuda.current_stream()
        first.wait_stream(current)
        second.wait_stream(current)
        with torch.cuda.stream(first):
            statistics_kernel[(rows,)](x, mean, rstd, cols, self.norm.eps, BLOCK=block)
        with torch.cuda.stream(second):
            normalise_kernel[(rows,)](
                x, mean, rstd, self.norm.weight, self.norm.bias, out, cols, BLOCK=block
            )
        current.wait_stream(first)
        current.wait_stream(second)
        return out
