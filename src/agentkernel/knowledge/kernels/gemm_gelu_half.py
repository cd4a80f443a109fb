"""Half-precision linear layer with bias and exact GELU in the epilogue.

Helps: the activation works on fp32 accumulators, so it is also more exact than on a rounded
output.
Pitfalls: the reference rounds between the ops; strict comparison is with the fp64 oracle, where
the fused form is nearer. erf on a 128 x 256 tile needs registers: watch for spills.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F

META = {
    "title": "Half GEMM with bias and GELU epilogue",
    "summary": "fp16 linear layer fused with bias and gelu epilogue",
    "patterns": ["gemm", "linear", "epilogue", "pointwise", "activation"],
    "dtypes": ["float16", "bfloat16"],
    "hints": {
        "gemm.fp16.tile@hopper": "128x128x64",
        "gemm.fp16.num_warps@hopper": "4",
        "gemm.fp16.num_stages@hopper": "4",
        "gemm.bf16.tile@hopper": "128x128x64",
        "gemm.bf16.num_warps@hopper": "4",
        "gemm.bf16.num_stages@hopper": "4",
    },
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def gemm_gelu_half_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
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
            b_ptr + column[None, :] * depth + k[:, None],
            mask=(k < depth)[:, None] & (column < columns)[None, :],
            other=0.0,
        )
        total = tl.dot(a, b, total)
    bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    total += bias[None, :]
    total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    tl.store(
        out_ptr + row[:, None] * columns + column[None, :],
        total.to(out_ptr.dtype.element_ty),
        mask=(row < rows)[:, None] & (column < columns)[None, :],
    )


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, dtype=torch.float16) * 0.1)
        self.bias = nn.Parameter(torch.randn(outputs, dtype=torch.float16))

    def forward(self, x):
        return F.gelu(F.linear(x, self.weight, self.bias))


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        b = self.weight
        depth = x.shape[-1]
        rows, columns = x.numel() // depth, b.shape[0]
        out = torch.empty(*x.shape[:-1], columns, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, 128) * triton.cdiv(columns, 128),)
        gemm_gelu_half_kernel[grid](
            x,
            b,
            self.bias,
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
    return [torch.randn(70, 96, dtype=torch.float16)]


def get_init_inputs():
    return [96, 150]
