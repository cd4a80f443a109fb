"""An fp32 product as three products of fp16 planes, emulated in torch, and the bound of its error.

Planes and scales are those of `compiler/products/planes.py`, sums are fp32 in the kernel's steps of
K, a tile that meets a marked block takes TF32 products. A tensor core truncates as it adds; torch
rounds to the nearest, but for `tf32_product`, which truncates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from agentkernel.compiler.kernel_helpers import LEAST, LEAST_ROW
from agentkernel.compiler.products.schedules import BLOCK
from agentkernel.tools.judge.reference.rounding_noise import in_tf32

STEP, EXACT_STEP = 64, 16
"""Steps of K: of planes, and of a tile that meets a marked block."""
U = 2.0**-24


class Planes(NamedTuple):
    """A matrix [rows <= 128, K] as the kernel holds it: x = scale * (high + low / 2048)."""

    high: torch.Tensor
    low: torch.Tensor
    scale: torch.Tensor
    """fp32 [K]: that of the block in which a column lies."""
    marked: torch.Tensor
    """bool [blocks of K]."""


def planes_of(x: torch.Tensor) -> Planes:
    """Split an fp32 matrix [rows <= 128, K] into planes, fp32 with the values of fp16."""
    depth = x.shape[1]
    blocks = torch.nn.functional.pad(x, (0, -depth % BLOCK)).unflatten(1, (-1, BLOCK))
    most = blocks.abs().amax((0, 2))
    place = torch.where(most == 0, 0, torch.frexp(most).exponent - 15)
    scaled = torch.ldexp(blocks, -place[None, :, None])
    least = torch.where(scaled == 0, 1.0, scaled.abs()).amin((0, 2))
    rows = scaled.abs().amax(2)
    small = (torch.where(rows == 0, 1.0, rows) < LEAST_ROW).any(0)
    marked = (place < -59) | (place > 31) | (least < LEAST) | small
    y = scaled.flatten(1)[:, :depth]
    high = y.half().float()
    low = ((y - high) * 2048).half().float()
    scale = torch.ldexp(torch.ones(place.shape), place).repeat_interleave(BLOCK)[:depth]
    return Planes(high, low, scale, marked)


def tf32_planes(x: torch.Tensor) -> Planes:
    """The two numbers in TF32 that a marked tile multiplies, in the same form."""
    high = in_tf32(x, nearest=True)
    low = in_tf32((x - high) * 2048, nearest=True)
    return Planes(high, low, torch.ones(x.shape[1]), torch.zeros(0, dtype=torch.bool))


class Parts(NamedTuple):
    """A matrix as a product splits it in its loop: x = high + mid + low, fp32 with the values of
    bf16."""

    high: torch.Tensor
    mid: torch.Tensor
    low: torch.Tensor


def parts_of(x: torch.Tensor) -> Parts:
    """Split an fp32 matrix into parts, by its bits as the kernel does."""
    high = ((x.view(torch.int32) + 0x8000) & -0x10000).view(torch.float32)
    rest = x - high
    mid = (rest.view(torch.int32) & -0x10000).view(torch.float32)
    low = ((rest - mid).view(torch.int32) & -0x10000).view(torch.float32)
    return Parts(high, mid, low)


def parts_product(a: torch.Tensor, b: torch.Tensor, step: int = 32) -> torch.Tensor:
    """a @ b.T of fp32 matrices in parts, the six products of a step one after the other."""
    total = a.new_zeros(len(a), len(b))
    for start in range(0, a.shape[1], step):
        one, other = (parts_of(x[:, start : start + step].contiguous()) for x in (a, b))
        found = one.low @ other.high.T
        for left, right in (
            (one.mid, other.mid), (one.high, other.low), (one.mid, other.high),
            (one.high, other.mid), (one.high, other.high),
        ):  # fmt: skip
            found = torch.addmm(found, left, right.T)
        total += found
    return total


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b.T of fp32 [rows <= 128, K], [cols <= 128, K]: one tile of the kernel, emulated."""
    left, right, step = planes_of(a), planes_of(b), STEP
    if bool((left.marked | right.marked).any()):
        left, right, step = tf32_planes(a), tf32_planes(b), EXACT_STEP
    total = torch.zeros(a.shape[0], b.shape[0])
    for start in range(0, a.shape[1], step):
        here = slice(start, start + step)
        high, low, other = left.high[:, here], left.low[:, here], right.high[:, here].T
        part = (low @ other + high @ right.low[:, here].T) / 2048
        total += (part + high @ other) * (left.scale[start] * right.scale[start])
    return total


def bound(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What an element of `product` is off by at most, fp64: docs/planes.md has the derivation."""
    sides, step = [planes_of(a), planes_of(b)], STEP
    if bool((sides[0].marked | sides[1].marked).any()):
        step = EXACT_STEP
    sizes, splits, residuals = [], [], []
    for x, planes in zip((a, b), sides, strict=True):
        size = x.double().abs()
        scale = planes.scale.double() * (size > 0) if step == STEP else torch.zeros_like(size)
        sizes.append(size)
        splits.append(torch.maximum(2.0**-23 * size, 2.0**-36 * scale))
        residuals.append(torch.maximum(2.0**-11 * size, 2.0**-25 * scale))
    (x, y), (d, e), (r, q) = sizes, splits, residuals
    represented = x @ e.T + d @ y.T + d @ e.T + r @ q.T
    sums = (step + -(-a.shape[1] // step) + 1) * U * ((x + r) @ (y + q).T)
    return represented + sums + a.shape[1] * 2.0**-149


def tf32_product(a: torch.Tensor, b: torch.Tensor, step: int = 32) -> torch.Tensor:
    """a @ b.T of fp32 [rows, K], [cols, K] as three TF32 products a step of K (Triton's `tf32x3`),
    whose terms a tensor core adds eight at a time, truncated."""
    left, right = (in_tf32(x, nearest=True) for x in (a, b))
    left_rest, right_rest = (in_tf32(x - y, nearest=True) for x, y in ((a, left), (b, right)))
    total = torch.zeros(a.shape[0], b.shape[0])
    for start in range(0, a.shape[1], step):
        here = slice(start, start + step)
        part = torch.zeros(total.shape, dtype=torch.float64)
        for x, y in ((left_rest, right), (left, right_rest), (left, right)):
            part = _on_tensor_core(x[:, here], y[:, here], part)
        total += part.float()
    return total


def _on_tensor_core(x: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """x @ y.T + total with exact products, cut at two bits below the last place of the largest of
    nine terms, and each sum to fp32 (Fasi and others, 2021, for two bits more than theirs)."""
    for k in range(0, x.shape[1], 8):
        terms = x[:, None, k : k + 8].double() * y[None, :, k : k + 8].double()
        terms = torch.cat([terms, total[..., None]], -1)
        place = torch.ldexp(
            torch.ones(total.shape, dtype=torch.float64),
            torch.frexp(terms.abs().amax(-1)).exponent - 26,
        )
        found = torch.frexp(((terms / place[..., None]).trunc() * place[..., None]).sum(-1))
        total = torch.ldexp((found.mantissa * 2.0**24).trunc() / 2.0**24, found.exponent)
    return total


def fp32_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b.T of fp32 [rows, K], [cols, K] by fused multiply-adds, term after term."""
    total = torch.zeros(a.shape[0], b.shape[0])
    for k in range(a.shape[1]):
        total = (a[:, k, None].double() * b[None, :, k].double() + total.double()).float()
    return total
