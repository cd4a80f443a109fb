import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=0))


def row_sum(x):
    x = x.contiguous()
    n = x.shape[-1]
    y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
    row_sum_kernel[(y.numel(),)](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return row_sum(x)
