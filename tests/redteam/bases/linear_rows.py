import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def linear_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, k, sn, sk, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * k + c, mask=c < k, other=0.0)
    w = tl.load(w_ptr + col * sn + c * sk, mask=c < k, other=0.0)
    tl.store(y_ptr + row * n + col, tl.sum(x * w, axis=0) + tl.load(b_ptr + col))


def linear(x, weight, bias, sn, sk):
    x = x.contiguous()
    n, k = weight.shape
    y = torch.empty((*x.shape[:-1], n), dtype=x.dtype, device=x.device)
    rows = x.numel() // k
    if rows:
        linear_kernel[(rows, n)](x, weight, bias, y, n, k, sn, sk, BLOCK=triton.next_power_of_2(k))
    return y


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        w = self.linear.weight
        return linear(x, w, self.linear.bias, *w.stride())
