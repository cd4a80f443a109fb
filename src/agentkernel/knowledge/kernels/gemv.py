"""Matrix-vector product: one program a block of rows, bound by reading the matrix once.

Helps: products with one or few columns: tensor cores have nothing to do, bandwidth is all.
Pitfalls: tall and narrow matrices want more rows a program; wide ones a split over K.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Matrix times vector",
    "summary": "matrix vector product, memory bound dot product of each row",
    "patterns": ["gemm", "gemv", "matmul", "row_reduction"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def gemv_kernel(a_ptr, x_ptr, out_ptr, rows, depth, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    row = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    inside = row < rows
    total = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
    for start in range(0, depth, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = inside[:, None] & (k < depth)[None, :]
        a = tl.load(a_ptr + row[:, None] * depth + k[None, :], mask=mask, other=0.0)
        x = tl.load(x_ptr + k, mask=k < depth, other=0.0)
        total += a.to(tl.float32) * x.to(tl.float32)[None, :]
    tl.store(out_ptr + row, tl.sum(total, axis=1), mask=inside)


class Model(nn.Module):
    def forward(self, a, x):
        return a @ x


class ModelNew(Model):
    def forward(self, a, x):
        a, x = a.contiguous(), x.contiguous()
        rows, depth = a.shape
        out = torch.empty(rows, dtype=a.dtype, device=a.device)
        gemv_kernel[(triton.cdiv(rows, 8),)](
            a, x, out, rows, depth, BLOCK_M=8, BLOCK_K=128, num_warps=4
        )
        return out


def get_inputs():
    return [torch.randn(45, 300), torch.randn(300)]
