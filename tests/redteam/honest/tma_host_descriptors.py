"""Descriptors made on the host, passed as arguments.

problem: h_g_linear_fp16
needs: gpu
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def linear_kernel(
    x_desc, w_desc, y_desc, b_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(x_desc.load([m, k]), w_desc.load([n, k]).T, acc)
    column = n + tl.arange(0, BN)
    acc += tl.load(b_ptr + column, mask=column < N, other=0.0).to(tl.float32)[None, :]
    y_desc.store([m, n], tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL).to(tl.float16))


def aligned(x):
    """Descriptors want addresses of 16 bytes."""
    return x.clone() if x.storage_offset() * x.element_size() % 16 else x


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.fc = nn.Linear(inner, outer, dtype=torch.float16)

    def forward(self, x):
        x = aligned(x.contiguous())
        weight = aligned(self.fc.weight.detach())
        N, K = weight.shape
        M = x.shape[0]
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        linear_kernel[(triton.cdiv(M, 128), triton.cdiv(N, 128))](
            TensorDescriptor(x, [M, K], [K, 1], [128, 64]),
            TensorDescriptor(weight, [N, K], [K, 1], [128, 64]),
            TensorDescriptor(y, [M, N], [N, 1], [128, 128]),
            self.fc.bias,
            N,
            K,
            BM=128,
            BN=128,
            BK=64,
            num_warps=8,
            num_stages=3,
        )
        return y
