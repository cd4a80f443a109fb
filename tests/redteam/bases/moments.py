import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def moments_kernel(x_ptr, m_ptr, v_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    d = tl.where(mask, x - mean, 0.0)
    tl.store(m_ptr + row, mean)
    tl.store(v_ptr + row, tl.sum(d * d, axis=0) / n)


def moments(x):
    x = x.contiguous()
    n = x.shape[-1]
    mean = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
    var = torch.empty_like(mean)
    moments_kernel[(mean.numel(),)](x, mean, var, n, BLOCK=triton.next_power_of_2(n))
    return mean, var


class ModelNew(nn.Module):
    def forward(self, x):
        return moments(x)
