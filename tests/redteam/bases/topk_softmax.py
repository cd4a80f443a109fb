import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, n)
    x = tl.load(x_ptr + row * n + cols)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        values, places = torch.ops.aten.topk.default(x, 8, -1)
        values = values.contiguous()
        y = torch.empty_like(values)
        rows = y.numel() // 8
        if rows:
            softmax_kernel[(rows,)](values, y, 8)
        return y, places
