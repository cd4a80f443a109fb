import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def batch_norm_kernel(x_ptr, m_ptr, v_ptr, w_ptr, b_ptr, y_ptr, n, total, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < total
    c = i % n
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    mean = tl.load(m_ptr + c, mask=mask, other=0.0)
    var = tl.load(v_ptr + c, mask=mask, other=1.0)
    w = tl.load(w_ptr + c, mask=mask, other=0.0)
    b = tl.load(b_ptr + c, mask=mask, other=0.0)
    tl.store(y_ptr + i, (x - mean) / tl.sqrt(var + eps) * w + b, mask=mask)


def batch_norm(x, mean, var, weight, bias, eps):
    x = x.contiguous()
    y = torch.empty_like(x)
    total = x.numel()
    grid = (triton.cdiv(total, 1024),)
    batch_norm_kernel[grid](x, mean, var, weight, bias, y, x.shape[-1], total, eps, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        norm = self.norm
        return batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps)
