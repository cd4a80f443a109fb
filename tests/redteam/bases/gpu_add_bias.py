import triton
import triton.language as tl
from torch import nn
from torch.nn import functional


@triton.jit
def add_bias_kernel(out_ptr, bias_ptr, size, inner, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bias = tl.load(bias_ptr + at // inner % count, mask=at < size, other=0.0)
    value = tl.load(out_ptr + at, mask=at < size, other=0.0)
    tl.store(out_ptr + at, value + bias, mask=at < size)


def add_bias(out, bias, inner):
    size = out.numel()
    grid = (triton.cdiv(size, 1024),)
    add_bias_kernel[grid](out, bias, size, inner, bias.numel(), BLOCK=1024)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        out = functional.linear(x, self.linear.weight)
        add_bias(out, self.linear.bias, 1)
        return out
