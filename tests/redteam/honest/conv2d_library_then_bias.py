"""The library convolves without a bias; a kernel adds it to the result.

problem: h_conv2d
policy: mixed
needs: cpu
"""

import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F


@triton.jit
def bias_kernel(y_ptr, b_ptr, total, channels, area, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    y = tl.load(y_ptr + place, mask=inside, other=0.0)
    b = tl.load(b_ptr + place // area % channels, mask=inside, other=0.0)
    tl.store(y_ptr + place, y + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1)

    def forward(self, x):
        y = F.conv2d(x.contiguous(), self.conv.weight, stride=2, padding=1).contiguous()
        total = y.numel()
        area = y.shape[2] * y.shape[3]
        bias_kernel[(triton.cdiv(total, 1024),)](
            y, self.conv.bias, total, y.shape[1], area, BLOCK=1024
        )
        return y
