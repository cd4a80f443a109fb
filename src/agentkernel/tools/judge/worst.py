"""Is one element, row or channel wrong where the averages do not show it?

Every element is measured against the scale of its own row (and, of values without structure, of its
own channel), so that small rows beside large ones count. One that is off by more than four times
what the 99.9% quantile may be, and by more than eight times eager's error at the same place, needs
an excuse: that the original itself moves as far there when its inputs and weights move by their
last bit. Ill-conditioned elements are excused by that, wrong and imprecise ones are not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ROW = 32
"""A row has at least so many elements; shorter last dimensions are taken together."""
ABOVE_QUANTILE = 4.0
ABOVE_EAGER = 8.0
BLUR = 16.0
"""An honest kernel may be off by so many times what one ulp of its inputs does."""
DRAWS = 8
AT_ONCE = 1 << 27
"""Elements that are looked at together: some fifty bytes of room each."""
SUBNORMAL = {"float16": 2.0**-23, "bfloat16": 2.0**-126, "float32": 2.0**-126}
"""Differences below this are underflow, which hardware may flush to zero."""
Blur = Callable[[int], "torch.Tensor | None"]
"""The original's output in fp64 (None where it has none) after inputs and weights have moved by an
ulp, by the seed of the draw."""


@dataclass(frozen=True)
class Leeway:
    """What else a comparison may know. `blur` as above; `columns`: the values are alike in every
    channel; `constant`: inputs are equal, all or along a dimension, where rounding meets exact
    cancellation."""

    blur: Blur | None = None
    columns: bool = False
    constant: bool = False

    def of(self, piece: slice) -> Leeway:
        """The same for a part of the output's first dimension."""
        blur = self.blur
        if blur is None:
            return self

        def part(draw: int) -> torch.Tensor | None:
            moved = blur(draw)
            return None if moved is None else moved[piece]

        return dataclasses.replace(self, blur=part)


@dataclass(frozen=True)
class Largest:
    """The largest error of an element against its own scale, and which elements are wrong (None
    for none)."""

    error: float
    allowed: float
    wrong: torch.Tensor | None


def find_largest(
    found: torch.Tensor,
    eager: torch.Tensor,
    oracle: torch.Tensor,
    compared: torch.Tensor,
    element_allowed: float,
    leeway: Leeway,
) -> Largest:
    """Look at every element that is `compared`. `element_allowed` bounds the 99.9% quantile."""
    import torch

    allowed = ABOVE_QUANTILE * element_allowed
    if found.numel() == 0:
        return Largest(0.0, allowed, None)
    if found.numel() > AT_ONCE and found.shape[0] > 1:
        parts = []
        step = max(1, found.shape[0] * AT_ONCE // found.numel())
        for start in range(0, found.shape[0], step):
            piece = slice(start, start + step)
            part = find_largest(
                found[piece],
                eager[piece],
                oracle[piece],
                compared[piece],
                element_allowed,
                leeway.of(piece),
            )
            parts.append(part)
        return joined(parts, oracle, step)
    truth = torch.where(compared, oracle, 0.0)
    off = torch.where(compared, found.double() - oracle, 0.0).abs_()
    eager_off = torch.where(compared, eager.double() - oracle, 0.0).abs_()
    scale = own_scale(truth, leeway.columns)
    least = SUBNORMAL.get(str(eager.dtype).removeprefix("torch."), 0.0)
    wrong = (off > allowed * scale) & (off > ABOVE_EAGER * eager_off) & (off > least)
    relative = off / scale.clamp(min=torch.finfo(torch.float64).tiny)
    if bool(wrong.any()):
        wrong = unexcused(wrong, off, truth, leeway.blur)
    if not bool(wrong.any()):
        return Largest(float(relative.max()), allowed, None)
    return Largest(float(relative[wrong].max()), allowed, wrong)


def joined(parts: Sequence[Largest], oracle: torch.Tensor, step: int) -> Largest:
    """The worst of `parts`, each of `step` entries along the first dimension."""
    import torch

    error = max(part.error for part in parts)
    if all(part.wrong is None for part in parts):
        return Largest(error, parts[0].allowed, None)
    wrong = torch.zeros_like(oracle, dtype=torch.bool)
    for number, part in enumerate(parts):
        if part.wrong is not None:
            wrong[number * step : (number + 1) * step] = part.wrong
    bad = max(part.error for part in parts if part.wrong is not None)
    return Largest(bad, parts[0].allowed, wrong)


def own_scale(truth: torch.Tensor, columns: bool) -> torch.Tensor:
    """The size that an element's error is measured against: at least its own, else the RMS of its
    row; with `columns` that of its row or of its slice along any dimension, the smallest."""
    import torch

    square = truth.square()
    inner = row_dims(truth)
    scale = square.mean(dim=inner, keepdim=True) if inner else square
    for dim in range(truth.ndim) if columns else ():
        others = [other for other in range(truth.ndim) if other != dim]
        if math.prod(truth.shape[other] for other in others) >= ROW:
            scale = torch.minimum(scale, square.mean(dim=others, keepdim=True))
    return torch.maximum(scale.sqrt(), truth.abs())


def row_dims(value: torch.Tensor) -> list[int]:
    """The last dimensions, as many as make a row."""
    split = value.ndim
    while split > 0 and math.prod(value.shape[split:]) < ROW:
        split -= 1
    return list(range(split, value.ndim))


def unexcused(
    wrong: torch.Tensor, off: torch.Tensor, truth: torch.Tensor, blur: Blur | None
) -> torch.Tensor:
    """Of the `wrong` elements those that are off by more than ill conditioning explains."""
    import torch

    spread = torch.zeros_like(off)
    for draw in range(DRAWS if blur is not None else 0):
        moved = blur(draw)  # type: ignore[misc]
        if moved is None:
            break
        spread = torch.maximum(spread, torch.nan_to_num(moved - truth, 0.0, 0.0, 0.0).abs())
        left = wrong & (off > BLUR * spread)
        if not bool(left.any()):
            return left
    return wrong & (off > BLUR * spread)


def spread_of(truth: torch.Tensor, blur: Blur | None) -> torch.Tensor:
    """How far two draws move an element of each row: the leeway where inputs are constant."""
    import torch

    spread = torch.zeros_like(truth)
    for draw in range(2 if blur is not None else 0):
        moved = blur(draw)  # type: ignore[misc]
        if moved is not None:
            spread = torch.maximum(spread, torch.nan_to_num(moved - truth, 0.0, 0.0, 0.0).abs())
    inner = row_dims(spread)
    return BLUR * (spread.amax(dim=inner, keepdim=True) if inner and spread.numel() else spread)
