"""Products summed by hand; a masked tile of 3 x 32 rows stands for a size that is no power of two.

problem: h_matvec
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matvec_kernel(a_ptr, x_ptr, y_ptr, M, K, BR: tl.constexpr, BK: tl.constexpr):
    lane = tl.arange(0, BR)
    r = tl.program_id(0) * 96 + lane
    used = (lane < 96) & (r < M)
    acc = tl.zeros((BR, BK), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        inside = used[:, None] & (k < K)[None, :]
        a = tl.load(a_ptr + r[:, None] * K + k[None, :], mask=inside, other=0.0)
        x = tl.load(x_ptr + k, mask=k < K, other=0.0)
        acc += a * x[None, :]
    tl.store(y_ptr + r, tl.sum(acc, axis=1), mask=used)


class ModelNew(nn.Module):
    def forward(self, a, x):
        a, x = a.contiguous(), x.contiguous()
        M, K = a.shape
        y = torch.empty(M, dtype=a.dtype, device=a.device)
        matvec_kernel[(triton.cdiv(M, 96),)](a, x, y, M, K, BR=128, BK=32)
        return y
