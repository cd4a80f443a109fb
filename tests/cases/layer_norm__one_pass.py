import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def ln(x_ptr, w_ptr, b_ptr, y_ptr, n, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    m = c < n
    x = tl.load(x_ptr + r * n + c, mask=m, other=0.0)
    mu = tl.sum(x, 0) / n
    var = tl.sum(x * x, 0) / n - mu * mu
    y = (x - mu) / tl.sqrt(var + 1e-5) * tl.load(w_ptr + c, mask=m, other=0.0) + tl.load(
        b_ptr + c, mask=m, other=0.0
    )
    tl.store(y_ptr + r * n + c, y, mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.LayerNorm(83)

    def forward(self, x):
        x = x.contiguous()
        n = x.shape[-1]
        y = torch.empty_like(x)
        ln[(x.numel() // n,)](x, self.n.weight, self.n.bias, y, n, B=triton.next_power_of_2(n))
        return y
