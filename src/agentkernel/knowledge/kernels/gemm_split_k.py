"""Linear layer with few output tiles and a long inner dimension: K is split over programs.

Launch one writes a partial product a piece; launch two adds the pieces in a fixed order.
Helps: fewer output tiles than SMs (small batches, wide inner dimension).
Pitfalls: the parts cost pieces * M * N * 4 bytes of traffic; atomics instead would make the
result vary from run to run.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Split-K fp32 GEMM",
    "summary": "matrix product with small output and long inner dimension, K split over programs",
    "patterns": ["gemm", "matmul", "linear", "split_k", "split"],
    "dtypes": ["float32"],
    "architectures": ["ampere", "ada", "hopper", "blackwell"],
    "hints": {
        "gemm.fp32.tile@hopper": "128x128x64",
        "gemm.fp32.num_warps@hopper": "8",
        "gemm.fp32.num_stages@hopper": "3",
    },
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def partial_kernel(
    a_ptr,
    b_ptr,
    part_ptr,
    rows,
    columns,
    depth,
    per_piece,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    piece = tl.program_id(2)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    last = tl.minimum((piece + 1) * per_piece, depth)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(piece * per_piece, last, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a_mask = (row < rows)[:, None] & (k < last)[None, :]
        b_mask = (k < last)[:, None] & (column < columns)[None, :]
        a = tl.load(a_ptr + row[:, None] * depth + k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + column[None, :] * depth + k[:, None], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32x3")
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    offsets = piece.to(tl.int64) * rows * columns + row[:, None] * columns + column[None, :]
    tl.store(part_ptr + offsets, total, mask=mask)


@triton.jit
def add_parts_kernel(part_ptr, out_ptr, size, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    total = tl.zeros((BLOCK,), tl.float32)
    for piece in range(PIECES):
        total += tl.load(part_ptr + piece * size + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, total, mask=mask)


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x):
        return self.linear(x)


class ModelNew(Model):
    def forward(self, x):
        x, weight = x.contiguous(), self.linear.weight
        (rows, depth), columns, pieces = x.shape, weight.shape[0], 4
        part = torch.empty(pieces, rows, columns, dtype=torch.float32, device=x.device)
        out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32), pieces)
        partial_kernel[grid](
            x,
            weight,
            part,
            rows,
            columns,
            depth,
            triton.cdiv(depth, pieces),
            BLOCK_M=32,
            BLOCK_N=32,
            BLOCK_K=64,
            num_warps=4,
            num_stages=3,
        )
        add_parts_kernel[(triton.cdiv(out.numel(), 512),)](
            part, out, out.numel(), PIECES=pieces, BLOCK=512, num_warps=4
        )
        return out


def get_inputs():
    return [torch.randn(20, 500)]


def get_init_inputs():
    return [500, 40]
