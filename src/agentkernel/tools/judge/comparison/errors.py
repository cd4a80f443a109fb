"""Errors of an output against the fp64 oracle: norm, quantile, and single elements.

Two measures: norm-wise, ||out - oracle|| / ||oracle||, and the 99.9% quantile over the elements
of |out - oracle| / max(RMS(oracle), |oracle|). Neither needs the whole tensor: blocks follow
each other along the first dimension, and of large outputs the quantile is that of an evenly
strided sample.

Elementwise, every element is measured against the scale of its own row (and, of values without
structure, of its own channel), so that small rows beside large ones count. One that is off by
more than four times what the 99.9% quantile may be, and by more than eight times eager's error
at the same place, is wrong unless the original itself moves as far there when its inputs and
weights move by their last bit. That excuses ill-conditioned elements, not imprecise ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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


ROW = 32
"""A row has at least so many elements; shorter last dimensions are taken together."""
ABOVE_QUANTILE = 4.0
ABOVE_EAGER = 8.0
PERTURB_FACTOR = 16.0
"""An honest kernel may be off by so many times what one ulp of its inputs does."""
DRAWS = 8
HONEST = 4.0
"""An element may be off by so many times what the honest evaluations that were made are there."""
MOST_SUSPECTS = 1 << 20
"""Of one block no more are kept: those that are furthest off."""
SUBNORMAL = {"float16": 2.0**-23, "bfloat16": 2.0**-120, "float32": 2.0**-120}
"""Differences below this are underflow, which hardware may flush to zero: of a sum, as of weights
that an exponential has made, each of 64 terms as large as the least normal number, times what it is
multiplied by: as large as the outputs, up to `MOST_FACTOR`."""
MOST_FACTOR = 1024.0
Perturb = Callable[[int], "torch.Tensor | None"]
"""The original's output in fp64 (None where it has none) after inputs and weights have moved by an
ulp, by the seed of the draw."""


@dataclass(frozen=True)
class Leeway:
    """What else a comparison may know. `perturb` as above; `columns`: the values are alike in every
    channel; `constant`: inputs are equal, all or along a dimension, where rounding meets exact
    cancellation. `honest` gives the output of an honest evaluation, by the number of the draw, and
    `permitted` that of one that does what PyTorch's flags permit, which `permits` names; `further`
    and `permitted_further` those of the same ones whose every result moves `HONEST` times as far.
    `pointed` says whether indices point at values as good as the reference's, None of what are no
    indices."""

    perturb: Perturb | None = None
    columns: bool = False
    constant: bool = False
    honest: Perturb | None = None
    permitted: Perturb | None = None
    permits: str = ""
    further: Perturb | None = None
    permitted_further: Perturb | None = None
    pointed: Callable[[torch.Tensor], bool | None] | None = None


@dataclass(frozen=True)
class LargestError:
    """The largest error of an element against its own scale, which elements are wrong, by their
    number in the flat output (None for none), and how much of what is allowed that error is."""

    error: float
    allowed: float
    wrong: torch.Tensor | None
    margin: float = 0.0


@dataclass(frozen=True)
class Suspect:
    """Elements of one block that need an excuse at the tightest bound there is: their numbers in
    the flat output, how far off they and eager are, the oracle there, and their own scale."""

    places: torch.Tensor
    off: torch.Tensor
    eager_off: torch.Tensor
    truth: torch.Tensor
    scale: torch.Tensor

    def only(self, keep: torch.Tensor) -> Suspect:
        """Those at which `keep` is True, or whose numbers it holds."""
        return Suspect(
            self.places[keep],
            self.off[keep],
            self.eager_off[keep],
            self.truth[keep],
            self.scale[keep],
        )


class Suspects:
    """Looks at every element, block by block. `least_allowed` is the tightest bound of the 99.9%
    quantile that can be asked for: what is allowed is known when all blocks were seen."""

    def __init__(self, least_allowed: float, columns: bool) -> None:
        self._least_allowed = least_allowed
        self._columns = columns
        self._seen = 0
        self._error = 0.0
        self._parts: list[Suspect] = []

    def add(
        self,
        found: torch.Tensor,
        eager: torch.Tensor,
        oracle: torch.Tensor,
        compared: torch.Tensor,
    ) -> None:
        """One block, of which the elements that are `compared` count."""
        import torch

        begin, self._seen = self._seen, self._seen + found.numel()
        if found.numel() == 0:
            return
        truth = torch.where(compared, oracle, 0.0)
        off = torch.where(compared, found.double() - oracle, 0.0).abs_()
        eager_off = torch.where(compared, eager.double() - oracle, 0.0).abs_()
        scale = own_scale(truth, self._columns)
        scale = scale.clamp_(min=torch.finfo(torch.float64).tiny)
        self._error = max(self._error, float((off / scale).max()))
        least = SUBNORMAL.get(str(eager.dtype).removeprefix("torch."), 0.0)
        if eager.dtype != torch.float16:
            least *= min(MOST_FACTOR, max(1.0, float(truth.abs().nan_to_num_(posinf=1.0).max())))
        bound = ABOVE_QUANTILE * self._least_allowed * scale
        odd = (off > bound) & (off > ABOVE_EAGER * eager_off) & (off > least)
        if not bool(odd.any()):
            return
        places = odd.reshape(-1).nonzero().reshape(-1)
        flat = (item.reshape(-1)[places] for item in (off, eager_off, truth, scale))
        part = Suspect(places + begin, *flat)
        if places.numel() > MOST_SUSPECTS:
            part = part.only((part.off / part.scale).topk(MOST_SUSPECTS, sorted=False).indices)
        self._parts.append(part)

    def at(self, value: torch.Tensor) -> torch.Tensor:
        """What another evaluation has at the elements that were noted."""
        import torch

        flat = value.reshape(-1)
        return torch.cat([flat[:0].double(), *(flat[part.places].double() for part in self._parts)])

    def result(
        self,
        element_allowed: float,
        perturb: Perturb | None,
        honest: Sequence[torch.Tensor] = (),
        further: Sequence[torch.Tensor] = (),
    ) -> LargestError:
        """What is wrong where `element_allowed` bounds the 99.9% quantile; `honest` evaluations of
        the original, and those moved `further`, of which `at` has taken the values, excuse an
        element that they move as far.
        """
        import torch

        allowed = ABOVE_QUANTILE * element_allowed
        share = min(1.0, self._error / allowed) if allowed else 0.0
        if not self._parts:
            return LargestError(self._error, allowed, None, share)
        columns = zip(*(vars(part).values() for part in self._parts), strict=True)
        every = Suspect(*(torch.cat(column) for column in columns))
        far = every.off > allowed * every.scale
        wrong = every.only(far)
        spread = spread_at(
            wrong,
            perturb,
            [value[far] for value in honest],
            [value[far] for value in further],
            allowed * wrong.scale,
        )
        wrong, spread = wrong.only(wrong.off > spread), spread[wrong.off > spread]
        if wrong.places.numel() == 0:
            return LargestError(self._error, allowed, None, share)
        bound = torch.maximum(allowed * wrong.scale, ABOVE_EAGER * wrong.eager_off)
        margin = float((wrong.off / torch.maximum(bound, spread)).max())
        error = float((wrong.off / wrong.scale).max())
        return LargestError(error, allowed, wrong.places.sort().values, margin)


def spread_at(
    found: Suspect,
    perturb: Perturb | None,
    honest: Sequence[torch.Tensor],
    further: Sequence[torch.Tensor] = (),
    rounding: torch.Tensor | float = 0.0,
) -> torch.Tensor:
    """How far each of the elements may be off for its ill conditioning: what an ulp of the inputs
    does to the original there, or an honest evaluation, with room on top; or one that has moved
    `further`, which has its room in that, and the `rounding` that any element has: from 1 to -1 is
    2, and what is rounded on the way there ends at an ulp less."""
    import torch

    spread = torch.zeros_like(found.off)
    for values, room, beside in ((honest, HONEST, 0.0), (further, 1.0, rounding)):
        for value in values:
            off = torch.nan_to_num(value - found.truth, 0.0, 0.0, 0.0).abs()
            spread = torch.maximum(spread, room * off + beside)
    for draw in range(DRAWS if perturb is not None else 0):
        if not bool((found.off > spread).any()):
            break
        moved = perturb(draw)  # type: ignore[misc]
        if moved is None:
            break
        there = moved.reshape(-1)[found.places]
        off = torch.nan_to_num(there - found.truth, 0.0, 0.0, 0.0).abs()
        spread = torch.maximum(spread, PERTURB_FACTOR * off)
    return spread


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


def spread_of(truth: torch.Tensor, perturb: Perturb | None) -> torch.Tensor:
    """How far two draws move an element of each row: the leeway where inputs are constant."""
    import torch

    spread = torch.zeros_like(truth)
    for draw in range(2 if perturb is not None else 0):
        moved = perturb(draw)  # type: ignore[misc]
        if moved is not None:
            spread = torch.maximum(spread, torch.nan_to_num(moved - truth, 0.0, 0.0, 0.0).abs())
    inner = row_dims(spread)
    return PERTURB_FACTOR * (
        spread.amax(dim=inner, keepdim=True) if inner and spread.numel() else spread
    )
