"""Residual add fused with layer normalisation; the sum and the normalised rows both go out.

Helps: transformer blocks need both: two reads and two writes, where eager moves the sum twice
more. The sum stays in registers between the two steps.
Pitfalls: normalise the sum as it is stored (rounded to the tensor's dtype), else half precision
differs from the reference; store the sum before the reduction to free registers.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Residual add and layer normalisation",
    "summary": "add the residual stream then layer norm, returning both results",
    "patterns": ["norm", "layernorm", "row_norm", "residual", "pointwise"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def residual_layernorm_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, sum_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    offsets = row * columns + column
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    rounded = (x + residual).to(sum_ptr.dtype.element_ty)
    tl.store(sum_ptr + offsets, rounded, mask=mask)
    total = rounded.to(tl.float32)
    centred = tl.where(mask, total - tl.sum(total, axis=0) / columns, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, centred * rstd * weight + bias, mask=mask)


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        total = x + residual
        return F.layer_norm(total, (total.shape[-1],), self.weight, self.bias, 1e-5), total


class ModelNew(Model):
    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        columns = x.shape[-1]
        total, out = torch.empty_like(x), torch.empty_like(x)
        residual_layernorm_kernel[(x.numel() // columns,)](
            x,
            residual,
            self.weight,
            self.bias,
            total,
            out,
            columns,
            1e-5,
            BLOCK=triton.next_power_of_2(columns),
            num_warps=8,
        )
        return out, total


def get_inputs():
    return [torch.randn(6, 150), torch.randn(6, 150)]


def get_init_inputs():
    return [150]
