"""Batch normalisation from the batch's own statistics, in two stages.

Stage one: a program for each (channel, sample) plane makes a mean and a centred sum of squares.
Stage two: programs merge the few partial results of their channel (Chan's formula) and normalise.
Helps: enough programs for every SM even with few channels; no atomics, so the same result each
run.
Pitfalls: E[x*x] - E[x]**2 cancels for channels with a large mean: merge centred sums.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Batch normalisation with batch statistics",
    "summary": "training-mode batch norm: mean and variance of each channel, two stages",
    "patterns": ["norm", "batch_norm", "reduction", "split"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def plane_statistics_kernel(x_ptr, mean_ptr, squares_ptr, plane, BLOCK: tl.constexpr):
    image = tl.program_id(0).to(tl.int64)
    mean = 0.0
    squares = 0.0
    for start in range(0, plane, BLOCK):
        offset = start + tl.arange(0, BLOCK)
        mask = offset < plane
        x = tl.load(x_ptr + image * plane + offset, mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(plane - start, BLOCK)
        block_mean = tl.sum(x, axis=0) / count
        centred = tl.where(mask, x - block_mean, 0.0)
        delta = block_mean - mean
        squares += tl.sum(centred * centred, axis=0) + delta * delta * start * count / (
            start + count
        )
        mean += delta * count / (start + count)
    tl.store(mean_ptr + image, mean)
    tl.store(squares_ptr + image, squares)


@triton.jit
def normalise_kernel(
    x_ptr,
    mean_ptr,
    squares_ptr,
    out_ptr,
    batch,
    channels,
    plane,
    eps,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    sample = tl.arange(0, BATCH)
    inside = sample < batch
    index = sample * channels + image % channels
    means = tl.load(mean_ptr + index, mask=inside, other=0.0)
    squares = tl.load(squares_ptr + index, mask=inside, other=0.0)
    mean = tl.sum(means, axis=0) / batch
    spread = tl.where(inside, means - mean, 0.0)
    total = tl.sum(squares, axis=0) + tl.sum(spread * spread, axis=0) * plane
    rstd = 1.0 / tl.sqrt(total / (batch * plane) + eps)
    offset = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < plane
    x = tl.load(x_ptr + image * plane + offset, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + image * plane + offset, (x - mean) * rstd, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return F.batch_norm(x, None, None, training=True)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        batch, channels = x.shape[0], x.shape[1]
        images = batch * channels
        plane = x.numel() // images
        mean = torch.empty(images, dtype=torch.float32, device=x.device)
        squares = torch.empty_like(mean)
        out = torch.empty_like(x)
        plane_statistics_kernel[(images,)](x, mean, squares, plane, BLOCK=256, num_warps=4)
        normalise_kernel[(images, triton.cdiv(plane, 256))](
            x,
            mean,
            squares,
            out,
            batch,
            channels,
            plane,
            1e-5,
            BATCH=triton.next_power_of_2(batch),
            BLOCK=256,
            num_warps=4,
        )
        return out


def get_inputs():
    return [torch.randn(3, 5, 9, 11) + 2.0]
