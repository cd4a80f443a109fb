import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pick(t_ptr, i_ptr, y_ptr, n, total, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    k = o < total
    i = tl.load(i_ptr + o // n, mask=k, other=0)
    v = tl.load(t_ptr + i * n + o % n, mask=k, other=0.0)
    tl.store(y_ptr + o, v * 2.0, mask=k)


class ModelNew(nn.Module):
    def forward(self, table, at):
        table = table.contiguous()
        at = at.contiguous()
        y = torch.empty((*at.shape, table.shape[1]), device=table.device, dtype=table.dtype)
        pick[(triton.cdiv(y.numel(), 256),)](table, at, y, table.shape[1], y.numel(), B=256)
        return y
