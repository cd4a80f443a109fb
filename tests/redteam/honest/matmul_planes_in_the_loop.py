"""fp16 planes made where tiles are read, and slices of K added after.

problem: h_matmul
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def plane_place(x):
    """The power of two by which x is divided so that its largest magnitude lies in [2**14, 2**15),
    and whether s s' of two such powers stays in fp32's range; a block of zeros has 0."""
    most = tl.max(tl.abs(x)).to(tl.int32, bitcast=True) >> 23
    place = tl.where(most == 0, 0, most - 141)
    return place, (place >= -59) & (place <= 31)


@triton.jit
def split_planes(x, place):
    """x / 2**place in fp16, 2048 times what that leaves of it, and the magnitude, 1 for 0."""
    x = x * ((127 - place) << 23).to(tl.float32, bitcast=True)
    high = x.to(tl.float16)
    low = ((x - high.to(tl.float32)) * 2048.0).to(tl.float16)
    return high, low, tl.where(x == 0.0, 1.0, tl.abs(x))


@triton.jit
def plane_product(a_high, a_low, b_high, b_low):
    """a @ b of fp32 matrices in fp16 planes: a chain of three products, small terms first. Its sum
    is one step's: the tensor core truncates as it adds, which over all of K would be seen."""
    part = tl.dot(a_low, b_high)
    part = tl.dot(a_high, b_low, part) * 0.00048828125
    return tl.dot(a_high, b_high, part)


@triton.jit
def product_partial(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_a,
    stride_b,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    """partial[split, M, N] = A[M, K] @ B[K, N] over one of SPLIT_K slices of K."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    program = tl.program_id(0)
    # Tiles are walked in groups of GROUP_M rows, so that what they share stays in L2.
    group_tiles = GROUP_M * tiles_n
    first_m = program // group_tiles * GROUP_M
    group_rows = tl.minimum(tiles_m - first_m, GROUP_M)
    tile_m = first_m + program % group_tiles % group_rows
    tile_n = program % group_tiles // group_rows

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    split = tl.program_id(1)
    slice_length = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    slice_start = split * slice_length
    slice_end = tl.minimum(slice_start + slice_length, K)
    ks += slice_start

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # Rows and columns past the edge wrap around; what they yield is never stored.
    a_rows = (rows % M).to(tl.int64)
    b_cols = (cols % N).to(tl.int64)
    a_ptrs = a_ptr + a_rows[:, None] * stride_a + ks[None, :]
    b_ptrs = b_ptr + b_cols[None, :] + ks[:, None].to(tl.int64) * stride_b
    holds = 1
    a_least = tl.full((BLOCK_M, BLOCK_K), 1.0, dtype=tl.float32)
    b_least = tl.full((BLOCK_K, BLOCK_N), 1.0, dtype=tl.float32)
    for k in range(slice_start, slice_end, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            inside = ks + (k - slice_start) < slice_end
            a = tl.load(a_ptrs, mask=inside[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=inside[:, None], other=0.0)
        a_place, a_holds = plane_place(a)
        b_place, b_holds = plane_place(b)
        holds &= (a_holds & b_holds).to(tl.int32)
        a_high, a_low, a_size = split_planes(a, a_place)
        b_high, b_low, b_size = split_planes(b, b_place)
        a_least = tl.minimum(a_least, a_size)
        b_least = tl.minimum(b_least, b_size)
        block_scale = ((127 + a_place + b_place) << 23).to(tl.float32, bitcast=True)
        acc += plane_product(a_high, a_low, b_high, b_low) * block_scale
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_b
    if (
        (holds == 0)
        | (tl.min(a_least) < 9.5367431640625e-07)
        | (tl.min(b_least) < 9.5367431640625e-07)
    ):
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        exact_ks = slice_start + tl.arange(0, 16)
        exact_a_ptrs = a_ptr + a_rows[:, None] * stride_a + exact_ks[None, :]
        exact_b_ptrs = b_ptr + b_cols[None, :] + exact_ks[:, None].to(tl.int64) * stride_b
        for k in tl.range(slice_start, slice_end, 16, num_stages=1):
            if EVEN_K:
                a = tl.load(exact_a_ptrs)
                b = tl.load(exact_b_ptrs)
            else:
                inside = exact_ks + (k - slice_start) < slice_end
                a = tl.load(exact_a_ptrs, mask=inside[None, :], other=0.0)
                b = tl.load(exact_b_ptrs, mask=inside[:, None], other=0.0)
            acc = tl.dot(a, b, acc, input_precision="tf32x3")
            exact_a_ptrs += 16
            exact_b_ptrs += 16 * stride_b

    row_mask = rows < M
    col_mask = cols < N
    tile_mask = row_mask[:, None] & col_mask[None, :]
    tile = rows.to(tl.int64)[:, None] * N + cols[None, :]
    plane = tl.cast(M, tl.int64) * N * (1)
    tl.store(out_ptr + split * plane + tile, acc, mask=tile_mask)


@triton.jit
def product_reduce(
    partial_ptr,
    out_ptr,
    M,
    N,
    batches,
    SPLIT_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """C[M, N] = the sum of partial[split, M, N] over split, then the epilogue."""
    program = tl.program_id(0)
    tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = program // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = program % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows < M
    col_mask = cols < N
    tile_mask = row_mask[:, None] & col_mask[None, :]
    tile = rows.to(tl.int64)[:, None] * N + cols[None, :]
    plane = tl.cast(M, tl.int64) * N * batches

    splits = tl.arange(0, SPLIT_K).to(tl.int64)[:, None, None]
    partials = partial_ptr + splits * plane + tile[None, :, :]
    acc = tl.sum(tl.load(partials, mask=tile_mask[None, :, :], other=0.0), axis=0)

    tl.store(out_ptr + tile, acc.to(out_ptr.dtype.element_ty), mask=tile_mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty((m, n), dtype=a.dtype, device=a.device)
        product_partials = torch.empty((2, m, n), device=out.device, dtype=torch.float32)
        product_partial[(triton.cdiv(m, 32) * triton.cdiv(n, 32), 2)](
            a,
            b,
            product_partials,
            m,
            n,
            k,
            a.stride(-2),
            b.stride(-2),
            EVEN_K=k % 32 == 0,
            BLOCK_M=32,
            BLOCK_N=32,
            BLOCK_K=32,
            GROUP_M=2,
            SPLIT_K=2,
            num_warps=4,
            num_stages=2,
        )
        product_reduce[(triton.cdiv(m, 16) * triton.cdiv(n, 64),)](
            product_partials,
            out,
            m,
            n,
            1,
            SPLIT_K=2,
            BLOCK_M=16,
            BLOCK_N=64,
        )
        return out
