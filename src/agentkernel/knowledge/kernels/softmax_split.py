"""Softmax of few but very long rows: every row is split over several programs.

Launch one makes a maximum and a sum a piece; launch two merges the pieces of its row (a handful
of numbers from L2) and writes its own piece.
Helps: fewer rows than SMs: one program a row leaves most of the GPU idle.
Pitfalls: two launches cost a few microseconds; the second read is cheap only while the rows fit
L2.
"""

import torch
import triton
import triton.language as tl
from torch import nn

META = {
    "title": "Softmax of few, very long rows",
    "summary": "softmax with every row split over several programs, two launches",
    "patterns": ["softmax", "row_softmax", "split"],
    "dtypes": ["float32", "float16", "bfloat16"],
    "hints": {"row.num_warps@hopper": "8"},
    "licence": "Apache-2.0",
    "source": "agentkernel",
}


@triton.jit
def piece_kernel(x_ptr, top_ptr, total_ptr, columns, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    column = piece * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=-float("inf")).to(
        tl.float32
    )
    top = tl.max(x, axis=0)
    tl.store(top_ptr + row * PIECES + piece, top)
    tl.store(total_ptr + row * PIECES + piece, tl.sum(tl.exp(x - top), axis=0))


@triton.jit
def merge_kernel(
    x_ptr,
    top_ptr,
    total_ptr,
    out_ptr,
    columns,
    pieces,
    PIECES: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    piece = tl.arange(0, PADDED)
    inside = piece < pieces
    tops = tl.load(top_ptr + row * PIECES + piece, mask=inside, other=-float("inf"))
    totals = tl.load(total_ptr + row * PIECES + piece, mask=inside, other=0.0)
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * tl.exp(tops - top), axis=0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * columns + column, tl.exp(x - top) / total, mask=mask)


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


class ModelNew(Model):
    def forward(self, x):
        x = x.contiguous()
        columns = x.shape[-1]
        rows = x.numel() // columns
        pieces = triton.cdiv(columns, 256)
        tops = torch.empty(rows, pieces, dtype=torch.float32, device=x.device)
        totals = torch.empty_like(tops)
        out = torch.empty_like(x)
        piece_kernel[(rows, pieces)](
            x, tops, totals, columns, PIECES=pieces, BLOCK=256, num_warps=4
        )
        merge_kernel[(rows, pieces)](
            x,
            tops,
            totals,
            out,
            columns,
            pieces,
            PIECES=pieces,
            PADDED=triton.next_power_of_2(pieces),
            BLOCK=256,
            num_warps=4,
        )
        return out


def get_inputs():
    return [torch.randn(2, 1100)]
