"""Sums, products and functions in fp32 by many orders, and the losses of precision to be caught."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from agentkernel.tools.judge.reference.rounding_noise import in_tf32

Sum = Callable[[torch.Tensor], torch.Tensor]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
CHAIN = 4096


def sum_chain(x: torch.Tensor) -> torch.Tensor:
    """Over the last dimension, one term after the other, a new sum every 4,096 terms."""
    parts = []
    for block in x.split(CHAIN, dim=-1):
        total = torch.zeros_like(block[..., 0])
        for term in block.unbind(-1):
            total = total + term
        parts.append(total)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def sum_lanes(x: torch.Tensor, lanes: int = 128) -> torch.Tensor:
    """In so many lanes, each a chain, then the lanes in pairs: a loop over blocks of a row."""
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % lanes))
    return sum_pairs(sum_chain(padded.unflatten(-1, (-1, lanes)).transpose(-1, -2)))


def sum_pairs(x: torch.Tensor) -> torch.Tensor:
    """In pairs."""
    while x.shape[-1] > 1:
        x = torch.nn.functional.pad(x, (0, x.shape[-1] % 2))
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


SUMS: dict[str, Sum] = {"chain": sum_chain, "128 lanes": sum_lanes, "pairs": sum_pairs}


def sum_in(dtype: torch.dtype) -> Sum:
    """A chain whose accumulator is `dtype`."""
    return lambda x: sum_chain(x.to(dtype)).to(x.dtype)


def tiled(tile: int, fused: bool) -> Product:
    """Tiles of K one after the other, in each a chain of multiply-adds, `fused` or not."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = a.new_zeros(*a.shape[:-1], b.shape[-1])
        for start in range(0, a.shape[-1], tile):
            stop = min(start + tile, a.shape[-1])
            part = torch.zeros_like(total) if tile < CHAIN else total
            for k in range(start, stop):
                left, right = a[..., :, k, None], b[..., k, None, :]
                if fused:
                    part = (part.double() + left.double() * right.double()).to(a.dtype)
                else:
                    part = part + left * right
            total = total + part if tile < CHAIN else part
        return total

    return product


PRODUCTS: dict[str, Product] = {
    "chain": tiled(CHAIN, fused=False),
    "chain, FMA": tiled(CHAIN, fused=True),
    "tiles of 16": tiled(16, fused=True),
    "tiles of 128": tiled(128, fused=True),
    "library": torch.matmul,
}


def product_tf32(nearest: bool) -> Product:
    """Operands with 10 bits of mantissa."""
    return lambda a, b: torch.matmul(in_tf32(a, nearest), in_tf32(b, nearest))


def product_bf16(parts: int) -> Product:
    """1 or 3 products of bf16 parts, added in fp32."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        high = [x.bfloat16().float() for x in (a, b)]
        low = [(x - h).bfloat16().float() for x, h in zip((a, b), high, strict=True)]
        total = torch.matmul(high[0], high[1])
        if parts == 3:
            total = total + (torch.matmul(high[0], low[1]) + torch.matmul(low[0], high[1]))
        return total

    return product


def product_fp16_accumulator(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The running sum is fp16."""
    total = a.new_zeros(*a.shape[:-1], b.shape[-1], dtype=torch.float16)
    for start in range(0, a.shape[-1], 16):
        piece = torch.matmul(
            a[..., start : start + 16].float(), b[..., start : start + 16, :].float()
        )
        total = (total.float() + piece).half()
    return total.to(a.dtype)


LOSSY_PRODUCTS: dict[str, Product] = {
    "TF32 to nearest": product_tf32(True),
    "TF32 truncated": product_tf32(False),
    "bf16x3": product_bf16(3),
    "bf16": product_bf16(1),
    "fp16 accumulator": product_fp16_accumulator,
}


def exp_scaled(x: torch.Tensor) -> torch.Tensor:
    """ex2 of x * log2(e), rounded to fp32 between: `tl.exp` on a GPU."""
    return torch.exp2((x.double() * math.log2(math.e)).float().double()).to(x.dtype)


def exp_series(x: torch.Tensor) -> torch.Tensor:
    """2**whole times a polynomial of degree 4."""
    scaled = x * math.log2(math.e)
    whole = scaled.round()
    rest = (scaled - whole) * math.log(2)
    series = 1 + rest * (1 + rest * (0.5 + rest * (1 / 6 + rest / 24)))
    return torch.ldexp(series, whole.int())


def exp_half(x: torch.Tensor) -> torch.Tensor:
    """In fp16."""
    return torch.exp(x.half()).to(x.dtype)


def reciprocal_12_bits(x: torch.Tensor) -> torch.Tensor:
    """A table's 12 bits, and no step of Newton's."""
    bits = (1 / x).contiguous().view(torch.int32)
    return (bits & ~0x7FF).view(torch.float32)


def tanh_by_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """2 * sigmoid(2 x) - 1, which cancels near 0."""
    return 2 * torch.sigmoid(2 * x) - 1


def tanh_by_exp(x: torch.Tensor) -> torch.Tensor:
    """By expm1, without cancellation."""
    grown = torch.expm1(-2 * x.abs())
    return torch.copysign(-grown / (grown + 2), x)


def erf_series(x: torch.Tensor) -> torch.Tensor:
    """Abramowitz and Stegun 7.1.25: 2.5e-5 of the largest value at most."""
    t = 1 / (1 + 0.47047 * x.abs())
    series = t * (0.3480242 + t * (-0.0958798 + t * 0.7478556))
    return torch.copysign(1 - series * torch.exp(-x * x), x)


def correct(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`function` in fp64, rounded once."""
    return lambda *given: function(*(x.double() for x in given)).to(given[0].dtype)
