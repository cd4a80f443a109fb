"""Parts of bf16 made where tiles are read, six products of them a step.

problem: h_matmul
needs: cpu
"""

import torch
import triton
import triton.language as tl
from torch import nn

VERIFIED = (
    "this drop-in was verified for a float32[free, free], b float32[a_dim1, free]; a_dim1 >= "
    "1; use the original module for others"
)


@triton.jit
def upper_half(bits):
    """The number of bf16 whose bits are the upper half of these."""
    return (bits >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def bf16_parts(x):
    """x = high + mid + low of 8 bits each: high rounded, mid cut off, low what they leave."""
    high = (x.to(tl.int32, bitcast=True) + 0x8000) & -0x10000
    x -= high.to(tl.float32, bitcast=True)
    mid = x.to(tl.int32, bitcast=True) & -0x10000
    low = (x - mid.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    return upper_half(high), upper_half(mid), upper_half(low)


@triton.jit
def parts_product(a_high, a_mid, a_low, b_high, b_mid, b_low):
    """a @ b of fp32 matrices in parts of bf16: a chain of six products, small terms first. Its sum
    is one step's: the tensor core truncates as it adds, which over all of K would be seen."""
    part = tl.dot(a_low, b_high)
    part = tl.dot(a_mid, b_mid, part)
    part = tl.dot(a_high, b_low, part)
    part = tl.dot(a_mid, b_high, part)
    part = tl.dot(a_high, b_mid, part)
    return tl.dot(a_high, b_high, part)


@triton.jit
def matmul_kernel(
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
    SHORT: tl.constexpr,
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
    # Rows and columns past the edge wrap around; what they yield is never stored.
    a_rows = (rows % M).to(tl.int64)
    b_cols = (cols % N).to(tl.int64)
    a_ptrs = a_ptr + a_rows[:, None] * stride_a + ks[None, :]
    b_ptrs = b_ptr + b_cols[None, :] + ks[:, None].to(tl.int64) * stride_b
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            inside = ks + k < K
            a = tl.load(a_ptrs, mask=inside[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=inside[:, None], other=0.0)
        a_high, a_mid, a_low = bf16_parts(a)
        b_high, b_mid, b_low = bf16_parts(b)
        acc += parts_product(a_high, a_mid, a_low, b_high, b_mid, b_low)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_b
    lost = tl.max((acc != acc).to(tl.int32))
    if (lost > 0) | SHORT:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
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
            acc = tl.dot(a, b, acc, input_precision="ieee" if SHORT else "tf32x3")
            exact_a_ptrs += 16
            exact_b_ptrs += 16 * stride_b

    row_mask = rows < M
    col_mask = cols < N
    tile_mask = row_mask[:, None] & col_mask[None, :]
    tile = rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(out_ptr + tile, acc.to(out_ptr.dtype.element_ty), mask=tile_mask)


def formula(a, b):
    """What the module computes, in plain torch: the backward pass alone runs it."""
    aten = torch.ops.aten
    matmul = aten.matmul.default(a, b)
    return (matmul,)


class Differentiable(torch.autograd.Function):
    """The kernels forward; backward differentiates `formula` at the saved inputs."""

    @staticmethod
    def forward(ctx, module, a, b):
        ctx.save_for_backward(a, b)
        return module.forward(a, b)

    @staticmethod
    def backward(ctx, *gradients):
        if torch.is_grad_enabled():
            raise RuntimeError("no second derivatives: use the original module for those")
        needed = ctx.needs_input_grad[1:]
        values = zip(ctx.saved_tensors, needed, strict=True)
        inputs = [value.detach().requires_grad_(need) for value, need in values]
        with torch.enable_grad():
            outputs = formula(*inputs)
        ends = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None and output.requires_grad
        ]
        found = torch.autograd.grad(
            [output for output, _ in ends],
            [value for value in inputs if value.requires_grad],
            [gradient for _, gradient in ends],
            allow_unused=True,
        )
        left = iter(found)
        return None, *(next(left) if need else None for need in needed)


class ModelNew(nn.Module):
    def forward(self, a, b):
        if a.dtype != torch.float32 or a.ndim != 2:
            raise ValueError(f"a is {a.dtype}{list(a.shape)}; {VERIFIED}")
        if b.dtype != torch.float32 or b.ndim != 2 or b.shape[0] != a.shape[1]:
            raise ValueError(f"b is {b.dtype}{list(b.shape)}; {VERIFIED}")
        if torch.is_autocast_enabled("cuda" if a.is_cuda else "cpu"):
            raise ValueError(
                "under torch.autocast the original has other dtypes than this drop-in: "
                "call it outside of autocast, or use the original module"
            )
        if torch.is_grad_enabled():
            tensors = (a, b)
            if any(tensor.requires_grad for tensor in tensors):
                return Differentiable.apply(self, *tensors)
        a = a.contiguous()
        b = b.contiguous()
        a_dim0 = a.shape[0]
        a_dim1 = a.shape[1]
        b_dim1 = b.shape[1]
        if a_dim1 < 1:
            raise ValueError(f"sizes are {a_dim0=}, {a_dim1=}, {b_dim1=}; {VERIFIED}")
        if a_dim0 == 0 or b_dim1 == 0:
            return torch.empty((a_dim0, b_dim1), device=a.device, dtype=torch.float32)
        output = torch.empty((a_dim0, b_dim1), device=a.device, dtype=torch.float32)
        matmul_kernel[(-(-a_dim0 // 64) * -(-b_dim1 // 64),)](
            a,
            b,
            output,
            a_dim0,
            b_dim1,
            a_dim1,
            a.stride(-2),
            b.stride(-2),
            EVEN_K=a_dim1 % 32 == 0,
            SHORT=a_dim1 <= 32,
            BLOCK_M=64,
            BLOCK_N=64,
            BLOCK_K=32,
            GROUP_M=8,
            num_warps=4,
            num_stages=4,
        )
        return output
