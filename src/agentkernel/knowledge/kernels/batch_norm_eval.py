"""Batch normalisation with running statistics: an affine map a channel, fused with ReLU.

Helps: one pass over the images in place of two; one program handles a piece of one plane, so the
four channel vectors are scalars in it.
Pitfalls: training mode needs batch statistics and must update the buffers: this holds for eval
only.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Batch normalisation in eval mode",
    "summary": "batch norm inference: fold running statistics into scale and shift",
    "patterns": ["norm", "batch_norm", "pointwise", "broadcast"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"pointwise.num_warps": "4"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def batch_norm_eval_kernel(
    x_ptr,
    mean_ptr,
    var_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    channels,
    plane,
    eps,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    channel = image % channels
    offset = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < plane
    mean = tl.load(mean_ptr + channel).to(tl.float32)
    scale = tl.load(weight_ptr + channel).to(tl.float32) / tl.sqrt(
        tl.load(var_ptr + channel).to(tl.float32) + eps
    )
    bias = tl.load(bias_ptr + channel).to(tl.float32)
    x = tl.load(x_ptr + image * plane + offset, mask=mask, other=0.0).to(tl.float32)
    y = (x - mean) * scale + bias
    tl.store(out_ptr + image * plane + offset, tl.where(y > 0, y, 0.0), mask=mask)


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        return torch.relu(self.norm(x))


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        norm = self.norm
        images = x.shape[0] * x.shape[1]
        plane = x.numel() // images
        out = torch.empty_like(x)
        batch_norm_eval_kernel[(images, triton.cdiv(plane, 256))](
            x,
            norm.running_mean,
            norm.running_var,
            norm.weight,
            norm.bias,
            out,
            x.shape[1],
            plane,
            norm.eps,
            BLOCK=256,
            num_warps=4,
        )
        return out


def get_inputs():
    return [torch.randn(2, 5, 9, 11)]


def get_init_inputs():
    return [5]
