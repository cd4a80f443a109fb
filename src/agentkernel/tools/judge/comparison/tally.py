"""The errors of an output against the fp64 oracle, gathered block by block.

Two measures: norm-wise, ||out - oracle|| / ||oracle||, and the 99.9% quantile over the elements of
|out - oracle| / max(RMS(oracle), |oracle|). Neither needs the whole tensor: blocks follow each
other along the first dimension, and of large outputs the quantile is that of an evenly strided
sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

QUANTILE = 0.999
QUANTILE_SAMPLE = 1 << 22
BLOCK_ELEMENTS = 1 << 24
"""Elements that are compared together: some fifty bytes of room each."""


@dataclass(frozen=True)
class Errors:
    """Norm-wise and per-element error of one output; infinite where the NaN pattern differs."""

    norm: float
    element: float


@dataclass(frozen=True)
class SpecialValues:
    """Which elements are `compared` as numbers, and which must be the same NaN or infinity."""

    compared: torch.Tensor
    agreed: torch.Tensor


class Tally:
    """Errors of `values` results for one output of `numel` elements, after every block was added.

    The same tally serves the candidate and eager (values 0 and 1) and any further evaluations.
    """

    def __init__(self, numel: int, values: int = 2) -> None:
        self._numel = numel
        self._step = numel // QUANTILE_SAMPLE + 1 if numel > QUANTILE_SAMPLE else 1
        self._seen = 0
        self._smallest = 0.0
        self._truth_squares = 0.0
        self._squares = [0.0] * values
        self._special = [False] * values
        self._truths: list[torch.Tensor] = []
        self._samples: list[list[torch.Tensor]] = [[] for _ in range(values)]

    def add(
        self,
        found: torch.Tensor,
        eager: torch.Tensor,
        oracle: torch.Tensor,
        others: Sequence[torch.Tensor] = (),
    ) -> None:
        """One block of each; blocks come in order, `others` are values 2 and following."""
        import torch

        self._smallest = torch.finfo(eager.dtype).tiny
        kinds = specials(eager, oracle)
        truth = torch.where(kinds.compared, oracle, 0.0)
        self._truth_squares += float(truth.norm()) ** 2
        first = -self._seen % self._step
        self._truths.append(truth.reshape(-1)[first :: self._step].abs())
        for number, value in enumerate((found, eager, *others)[: len(self._squares)]):
            self._add_value(number, value, eager, oracle, kinds, first)
        self._seen += oracle.numel()

    def _add_value(
        self,
        number: int,
        value: torch.Tensor,
        eager: torch.Tensor,
        oracle: torch.Tensor,
        kinds: SpecialValues,
        first: int,
    ) -> None:
        import torch

        if not same_specials(value, eager, kinds):
            self._special[number] = True
        if self._special[number]:
            return
        off = torch.where(kinds.compared, value.double() - oracle, 0.0).abs_()
        self._squares[number] += float(off.norm()) ** 2
        self._samples[number].append(off.reshape(-1)[first :: self._step].clone())

    def errors(self, number: int) -> Errors:
        """Both measures of one value."""
        import torch

        if self._special[number]:
            return Errors(math.inf, math.inf)
        if self._numel == 0:
            return Errors(0.0, 0.0)
        norm = max(math.sqrt(self._truth_squares), self._smallest)
        rms = max(norm / math.sqrt(self._numel), self._smallest)
        off = torch.cat(self._samples[number])
        element = quantile(off / torch.cat(self._truths).clamp(min=rms))
        return Errors(math.sqrt(self._squares[number]) / norm, element)


def errors(value: torch.Tensor, oracle: torch.Tensor, eager: torch.Tensor) -> Errors:
    """Both measures of one result that is there as a whole."""
    tally = Tally(oracle.numel(), values=1)
    for piece in blocks(oracle):
        tally.add(value[piece], eager[piece], oracle[piece])
    return tally.errors(0)


def blocks(value: torch.Tensor, most: int = 0) -> Iterator[tuple[slice, ...]]:
    """Slices along the first dimension of at most `most` elements each, where one row fits."""
    if value.ndim == 0 or value.numel() == 0:
        yield ()
        return
    step = max(1, value.shape[0] * (most or BLOCK_ELEMENTS) // value.numel())
    for start in range(0, value.shape[0], step):
        yield (slice(start, start + step),)


def quantile(values: torch.Tensor) -> float:
    """The 99.9% quantile of a sample.

    As the least of the largest few: for one element of so many, `kthvalue` runs on one of the GPU's
    multiprocessors for tens of milliseconds.
    """
    import torch

    flat = values.reshape(-1)
    rank = min(flat.numel(), math.ceil(QUANTILE * flat.numel()))
    return float(torch.topk(flat, flat.numel() - rank + 1, sorted=False).values.min())


def specials(eager: torch.Tensor, oracle: torch.Tensor) -> SpecialValues:
    """Sort the elements of an answer by what eager and the oracle, rounded, have there."""
    import torch

    rounded = oracle.to(eager.dtype)
    numbers = torch.isfinite(eager) & torch.isfinite(rounded)
    same = (eager == rounded) | (eager.isnan() & rounded.isnan())
    return SpecialValues(numbers, same & ~torch.isfinite(eager))


def same_specials(value: torch.Tensor, eager: torch.Tensor, kinds: SpecialValues) -> bool:
    """Whether `value` is a number where one is compared and has eager's NaN and infinities."""
    import torch

    if not bool(torch.isfinite(value[kinds.compared]).all()):
        return False
    mine, theirs = value[kinds.agreed], eager[kinds.agreed]
    return bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all())
