"""fp32 product x @ y where y is [K, N] with N contiguous.

Helps: the plain form; correct everywhere. On Hopper the TF32 matrix instruction takes fp32
operands from shared memory K-major only, so N-major tiles are shuffled through registers: 55
against 91 TFLOP/s (H200, 4096 cubed).
Pitfalls: for large products transpose y once into K-major first (about 2% of the time) and use
the K-major kernel; for half types the hardware reads both orders.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "fp32 matrix product with an N-major right side",
    "summary": "matmul of two activations where the second matrix has columns contiguous",
    "patterns": ["gemm", "matmul", "n_major"],
    "dtypes": ["float32"],
    "architectures": ["ampere", "ada", "hopper", "blackwell"],
    "hints": {
        "gemm.fp32.tile@hopper": "128x128x64",
        "gemm.fp32.num_warps@hopper": "8",
        "gemm.fp32.num_stages@hopper": "3",
        "gemm.fp32.transpose_b@hopper": "true",
    },
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def gemm_n_major_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    rows,
    columns,
    depth,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N)
    band = program // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - band * GROUP, GROUP)
    tile_m = band * GROUP + (program % (GROUP * tiles_n)) % height
    tile_n = (program % (GROUP * tiles_n)) // height
    row = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, depth, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + row[:, None] * depth + k[None, :],
            mask=(row < rows)[:, None] & (k < depth)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * columns + column[None, :],
            mask=(k < depth)[:, None] & (column < columns)[None, :],
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="tf32x3")

    tl.store(
        out_ptr + row[:, None] * columns + column[None, :],
        total.to(out_ptr.dtype.element_ty),
        mask=(row < rows)[:, None] & (column < columns)[None, :],
    )


class Model(nn.Module):
    def forward(self, x, y):
        return x @ y


class ModelNew(Model):
    def forward(self, x, y):
        x = x.contiguous()
        b = y.contiguous()
        depth = x.shape[-1]
        rows, columns = x.numel() // depth, b.shape[1]
        out = torch.empty(*x.shape[:-1], columns, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, 128) * triton.cdiv(columns, 128),)
        gemm_n_major_kernel[grid](
            x,
            b,
            out,
            rows,
            columns,
            depth,
            BLOCK_M=128,
            BLOCK_N=128,
            BLOCK_K=64,
            GROUP=8,
            num_warps=8,
            num_stages=3,
        )
        return out


def get_inputs():
    return [torch.randn(70, 96), torch.randn(96, 150)]
