"""Group normalisation: a group of channels of one sample is contiguous, so one program owns it.

Helps: eager computes statistics and applies them in two or three kernels. The second read comes
from L2 while the group fits.
Pitfalls: few groups with large planes leave SMs idle: split a group over several programs
(partial statistics, then apply). The channel of an element is offset // plane, never stored.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Group normalisation",
    "summary": "group norm of images: statistics over groups of channels",
    "patterns": ["norm", "group_norm"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def group_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, channels, group_channels, plane, eps, BLOCK: tl.constexpr
):
    program = tl.program_id(0).to(tl.int64)
    size = group_channels * plane
    first_channel = (program * group_channels) % channels
    mean = 0.0
    squares = 0.0
    for start in range(0, size, BLOCK):
        offset = start + tl.arange(0, BLOCK)
        mask = offset < size
        x = tl.load(x_ptr + program * size + offset, mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(size - start, BLOCK)
        block_mean = tl.sum(x, axis=0) / count
        centred = tl.where(mask, x - block_mean, 0.0)
        delta = block_mean - mean
        squares += tl.sum(centred * centred, axis=0) + delta * delta * start * count / (
            start + count
        )
        mean += delta * count / (start + count)
    rstd = 1.0 / tl.sqrt(squares / size + eps)
    for start in range(0, size, BLOCK):
        offset = start + tl.arange(0, BLOCK)
        mask = offset < size
        channel = first_channel + offset // plane
        x = tl.load(x_ptr + program * size + offset, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + channel, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + channel, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + program * size + offset, (x - mean) * rstd * weight + bias, mask=mask)


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        batch, channels = x.shape[0], x.shape[1]
        groups = self.norm.num_groups
        out = torch.empty_like(x)
        group_norm_kernel[(batch * groups,)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            channels,
            channels // groups,
            x.numel() // (batch * channels),
            self.norm.eps,
            BLOCK=512,
            num_warps=8,
        )
        return out


def get_inputs():
    return [torch.randn(2, 6, 9, 11)]


def get_init_inputs():
    return [3, 6]
