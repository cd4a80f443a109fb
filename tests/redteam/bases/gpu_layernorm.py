import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / cols
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / cols + eps)
    weight = tl.load(weight_ptr + col, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + col, mask=mask, other=0.0)
    tl.store(out_ptr + row * cols + col, centred * rstd * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty_like(x)
        layer_norm_kernel[(rows,)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            cols,
            self.norm.eps,
            BLOCK=triton.next_power_of_2(cols),
            num_warps=1,
        )
        return out
