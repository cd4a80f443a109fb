"""Both operands are split into fp16 planes once; three products of planes are one of fp32.

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
def product_split(
    source_ptr,
    planes_ptr,
    scale_ptr,
    rows,
    depth,
    stride,
    inner_batches,
    outer_stride,
    inner_stride,
    K_INSIDE: tl.constexpr,
):
    """source = scale * (planes[0] + planes[1] / 2048), block by block."""
    program = tl.program_id(0)
    deep_blocks = tl.cdiv(depth, 128)
    row_blocks = tl.cdiv(rows, 128)
    batch = (program // (row_blocks * deep_blocks)).to(tl.int64)
    row = program // deep_blocks % row_blocks * 128 + tl.arange(0, 128)
    ks = program % deep_blocks * 128 + tl.arange(0, 128)
    source_ptr += batch // inner_batches * outer_stride
    source_ptr += batch % inner_batches * inner_stride
    if K_INSIDE:
        source_ptrs = source_ptr + row.to(tl.int64)[:, None] * stride + ks[None, :]
        places = row.to(tl.int64)[:, None] * (deep_blocks * 128) + ks[None, :]
    else:
        source_ptrs = source_ptr + row[:, None] + ks.to(tl.int64)[None, :] * stride
        places = row[:, None] + ks.to(tl.int64)[None, :] * (row_blocks * 128)
    inside = (row < rows)[:, None] & (ks < depth)[None, :]
    x = tl.load(source_ptrs, mask=inside, other=0.0)
    place, holds = plane_place(x)
    high, low, size = split_planes(x, place)
    scale = ((127 + place) << 23).to(tl.float32, bitcast=True)
    tl.store(
        scale_ptr + program, tl.where(holds & (tl.min(size) >= 9.5367431640625e-07), scale, -1.0)
    )
    matrix = tl.cast(row_blocks * 128, tl.int64) * (deep_blocks * 128)
    planes_ptr += batch * matrix
    tl.store(planes_ptr + places, high)
    plane = tl.cast(tl.num_programs(0), tl.int64) * 16384
    tl.store(planes_ptr + plane + places, low)


@triton.jit
def product(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_a,
    stride_b,
    a_planes_ptr,
    a_scale_ptr,
    b_planes_ptr,
    b_scale_ptr,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    DEEP: tl.constexpr,
):
    """C[M, N] = A[M, K] @ B[K, N] and its epilogue, one tile a program."""
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

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    deep_blocks = tl.cdiv(K, 128)
    row_scales = a_scale_ptr + (tile_m * BLOCK_M // 128) * deep_blocks
    col_scales = b_scale_ptr + (tile_n * BLOCK_N // 128) * deep_blocks
    blocks = tl.arange(0, DEEP)
    row_scale = tl.load(row_scales + blocks, mask=blocks < deep_blocks, other=1.0)
    col_scale = tl.load(col_scales + blocks, mask=blocks < deep_blocks, other=1.0)
    if (tl.min(row_scale) > 0) & (tl.min(col_scale) > 0):
        padded_m = tl.cdiv(M, 128) * 128
        padded_n = tl.cdiv(N, 128) * 128
        deep = deep_blocks * 128
        a_plane = tl.cast(padded_m, tl.int64) * deep
        b_plane = tl.cast(padded_n, tl.int64) * deep
        a_highs = a_planes_ptr + rows.to(tl.int64)[:, None] * deep + ks[None, :]
        b_highs = b_planes_ptr + cols[None, :] + ks.to(tl.int64)[:, None] * padded_n
        for k in range(0, K, BLOCK_K):
            block_scale = tl.load(row_scales + k // 128) * tl.load(col_scales + k // 128)
            a_high, a_low = tl.load(a_highs), tl.load(a_highs + a_plane)
            b_high, b_low = tl.load(b_highs), tl.load(b_highs + b_plane)
            acc += plane_product(a_high, a_low, b_high, b_low) * block_scale
            a_highs += BLOCK_K
            b_highs += BLOCK_K * padded_n
    else:
        # Rows and columns past the edge wrap around; what they yield is never stored.
        a_rows = (rows % M).to(tl.int64)
        b_cols = (cols % N).to(tl.int64)
        exact_ks = tl.arange(0, 16)
        exact_a_ptrs = a_ptr + a_rows[:, None] * stride_a + exact_ks[None, :]
        exact_b_ptrs = b_ptr + b_cols[None, :] + exact_ks[:, None].to(tl.int64) * stride_b
        for k in tl.range(0, K, 16, num_stages=1):
            if EVEN_K:
                a = tl.load(exact_a_ptrs)
                b = tl.load(exact_b_ptrs)
            else:
                inside = exact_ks + k < K
                a = tl.load(exact_a_ptrs, mask=inside[None, :], other=0.0)
                b = tl.load(exact_b_ptrs, mask=inside[:, None], other=0.0)
            acc = tl.dot(a, b, acc, input_precision="tf32x3")
            exact_a_ptrs += 16
            exact_b_ptrs += 16 * stride_b

    row_mask = rows < M
    col_mask = cols < N
    tile_mask = row_mask[:, None] & col_mask[None, :]
    tile = rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(out_ptr + tile, acc.to(out_ptr.dtype.element_ty), mask=tile_mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty((m, n), dtype=a.dtype, device=a.device)
        product_a_planes = torch.empty(
            (2, 1, triton.cdiv(m, 128) * 128, triton.cdiv(k, 128) * 128),
            device=a.device,
            dtype=torch.float16,
        )
        product_a_scale = torch.empty(
            (1, triton.cdiv(m, 128), triton.cdiv(k, 128)), device=a.device, dtype=torch.float32
        )
        product_split[(triton.cdiv(m, 128) * triton.cdiv(k, 128) * 1,)](
            a,
            product_a_planes,
            product_a_scale,
            m,
            k,
            a.stride(-2),
            1,
            0,
            0,
            K_INSIDE=True,
            num_warps=8,
        )
        product_b_planes = torch.empty(
            (2, 1, triton.cdiv(k, 128) * 128, triton.cdiv(n, 128) * 128),
            device=b.device,
            dtype=torch.float16,
        )
        product_b_scale = torch.empty(
            (1, triton.cdiv(n, 128), triton.cdiv(k, 128)), device=b.device, dtype=torch.float32
        )
        product_split[(triton.cdiv(n, 128) * triton.cdiv(k, 128) * 1,)](
            b,
            product_b_planes,
            product_b_scale,
            n,
            k,
            b.stride(-2),
            1,
            0,
            0,
            K_INSIDE=False,
            num_warps=8,
        )
        product[(triton.cdiv(m, 32) * triton.cdiv(n, 32),)](
            a,
            b,
            out,
            m,
            n,
            k,
            a.stride(-2),
            b.stride(-2),
            product_a_planes,
            product_a_scale,
            product_b_planes,
            product_b_scale,
            EVEN_K=k % 32 == 0,
            BLOCK_M=32,
            BLOCK_N=32,
            BLOCK_K=32,
            GROUP_M=2,
            num_warps=4,
            num_stages=2,
            DEEP=triton.next_power_of_2(triton.cdiv(k, 128)),
        )
        return out
