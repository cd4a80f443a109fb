"""Triton kernels with honest and with lossy arithmetic, for `calibrate.py --device cuda`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import populations
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice

Evaluation = Callable[..., torch.Tensor]


@triton.jit
def _product(a, b, c, m, n, k, TILE: tl.constexpr, HOW: tl.constexpr, NARROW: tl.constexpr):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    j = tl.program_id(1) * 16 + tl.arange(0, 16)
    total = tl.zeros((16, 16), dtype=tl.float16 if NARROW else tl.float32)
    for start in range(0, k, TILE):
        s = start + tl.arange(0, TILE)
        left = tl.load(a + i[:, None] * k + s, mask=(i[:, None] < m) & (s < k), other=0.0)
        right = tl.load(b + s[:, None] * n + j, mask=(s[:, None] < k) & (j < n), other=0.0)
        if NARROW:
            part = tl.dot(left.to(tl.float16), right.to(tl.float16), out_dtype=tl.float16)
        else:
            part = tl.dot(left, right, input_precision=HOW)
        total += part
    tl.store(c + i[:, None] * n + j, total.to(tl.float32), mask=(i[:, None] < m) & (j < n))


def _multiplied(how: str, tile: int = 32, *, narrow: bool = False) -> Evaluation:
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = a.new_empty(m, n)
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
        _product[grid](a, b, c, m, n, k, TILE=tile, HOW=how, NARROW=narrow)
        return c

    return run


@triton.jit
def _norm(x, y, n, B: tl.constexpr, ONCE: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + r * n + c, mask=c < n, other=0.0)
    mean = tl.sum(value, 0) / n
    off = tl.where(c < n, value - mean, 0.0)
    variance = tl.sum(off * off, 0) / n
    if ONCE:
        variance = tl.sum(value * value, 0) / n - mean * mean
    tl.store(y + r * n + c, off * tl.rsqrt(variance + 1e-5), mask=c < n)


@triton.jit
def _softmax(x, y, n, B: tl.constexpr, HOW: tl.constexpr):
    r, c = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + r * n + c, mask=c < n, other=float("-inf"))
    if HOW != "no maximum":
        value = value - tl.max(value, 0)
    if HOW == "libdevice":
        grown = libdevice.exp(value)
    elif HOW == "half":
        grown = tl.exp(value.to(tl.float16).to(tl.float32)).to(tl.float16).to(tl.float32)
    else:
        grown = tl.exp(value)
    tl.store(y + r * n + c, grown / tl.sum(grown, 0), mask=c < n)


@triton.jit
def _pointwise(x, y, n, B: tl.constexpr, HOW: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + c, mask=c < n, other=0.0)
    if HOW == "libdevice.tanh":
        found = libdevice.tanh(value)
    elif HOW == "tanh.approx":
        found = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1
        )
    elif HOW == "2 sigmoid(2 x) - 1":
        found = 2 * tl.sigmoid(2 * value) - 1
    elif HOW == "libdevice.exp":
        found = libdevice.exp(value)
    elif HOW == "tl.exp":
        found = tl.exp(value)
    else:
        found = tl.sigmoid(value)
    tl.store(y + c, found, mask=c < n)


def _by_row(kernel: triton.JITFunction, **constants: object) -> Evaluation:
    def run(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y, n = torch.empty_like(x), x.shape[-1]
        kernel[(x.numel() // n,)](x, y, n, B=triton.next_power_of_2(n), **constants)
        return y

    return run


def _by_element(how: str) -> Evaluation:
    def run(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        _pointwise[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), B=1024, HOW=how)
        return y

    return run


def problems() -> Iterator[populations.Problem]:
    """Of the kernels above; the references are PyTorch's."""
    for k in (83, 1000, 4096, 9000):
        yield populations.Problem(
            f"Triton matmul, K {k}",
            torch.matmul,
            ((64, k), (k, 80)),
            {how: _multiplied(how) for how in ("ieee", "tf32x3")}
            | {"ieee, tiles of 16": _multiplied("ieee", 16)},
            {how: _multiplied(how) for how in ("tf32", "bf16x3")}
            | {"fp16 accumulator": _multiplied("ieee", narrow=True)},
        )
    for n in (83, 1000, 4096):
        yield populations.Problem(
            f"Triton layer norm, {n}",
            lambda x: F.layer_norm(x, x.shape[-1:]),
            ((200, n),),
            {"two passes": _by_row(_norm, ONCE=False)},
            {"one pass": _by_row(_norm, ONCE=True)},
        )
        yield populations.Problem(
            f"Triton softmax, {n}",
            lambda x: F.softmax(x, -1),
            ((200, n),),
            {how: _by_row(_softmax, HOW=how) for how in ("libdevice", "tl.exp")},
            {how: _by_row(_softmax, HOW=how) for how in ("no maximum", "half")},
        )
    shape = ((500, 300),)
    yield populations.Problem(
        "Triton tanh",
        torch.tanh,
        shape,
        {"libdevice.tanh": _by_element("libdevice.tanh")},
        {how: _by_element(how) for how in ("tanh.approx", "2 sigmoid(2 x) - 1")},
    )
    yield populations.Problem(
        "Triton exponential",
        torch.exp,
        shape,
        {"libdevice.exp": _by_element("libdevice.exp")},
        {"tl.exp": _by_element("tl.exp")},
    )
    yield populations.Problem(
        "Triton sigmoid", torch.sigmoid, shape, {"tl.sigmoid": _by_element("tl.sigmoid")}, {}
    )
