"""Pieces of the outputs of a large case, beside eager's and those of the sliced reference."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from agentkernel.domain.errors import one_line
from agentkernel.tools.judge.cases.values import pieces
from agentkernel.tools.judge.comparison.compare import OutputValues
from agentkernel.tools.judge.comparison.errors import HONEST, Perturb
from agentkernel.tools.judge.memory import MemoryPlan
from agentkernel.tools.judge.memory_count import NOT_COUNTED
from agentkernel.tools.judge.reference.axis import Axis
from agentkernel.tools.judge.reference.masked_nan import STAND_INS
from agentkernel.tools.judge.reference.oracle import moved_by_ulp
from agentkernel.tools.judge.reference.rounding_noise import with_rounding_noise
from agentkernel.tools.judge.reference.sliced import (
    Change,
    Evaluation,
    MissingValue,
    Sliced,
    unchanged,
)

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.problem.capture import Captured


UNLIKE = 0.05
Result = TypeVar("Result")


class SlicesDisagree(Exception):
    """The slices give something else than eager does, or nothing."""


@dataclass(frozen=True)
class Piece:
    """A part of one output.
    `offset`: where it begins in the output, which may have more dimensions, of one entry, in front.
    `perturb` gives moved fp64 values by the draw's seed."""

    output: int
    values: OutputValues
    offset: tuple[int, ...]
    perturb: Perturb | None = None
    honest: Perturb | None = None
    permitted: Perturb | None = None
    further: Perturb | None = None
    permitted_further: Perturb | None = None


class SlicedReference:
    """What slices of the reference say of the outputs, with what they are when inputs move by an
    ulp or hold other values in place of NaN and infinities."""

    def __init__(
        self,
        captured: Captured,
        plan: MemoryPlan,
        model: nn.Module,
        inputs: Sequence[object],
        rounds: frozenset[str],
        honest: bool,
    ) -> None:
        self._rounds = rounds
        self._honest = honest
        assert plan.slicing is not None
        self._captured = captured
        self._plan = plan
        self._slicing = plan.slicing
        self._model = model
        self._inputs = inputs
        self._plain = _running(self._with)
        self._drawn: dict[tuple[str, int], Sliced] = {}
        tensors = [item for item in inputs if isinstance(item, torch.Tensor)]
        holes = any(not _all_finite(item) for item in tensors)
        self._filled = (
            [self._with(Evaluation(_filler(size))) for size in STAND_INS] if holes else []
        )

    def _with(self, evaluation: Evaluation | None = None) -> Sliced:
        model, inputs, units = self._model, self._inputs, self._plan.slice_units
        return Sliced(self._captured, self._slicing, model, inputs, units, evaluation)

    def pieces(
        self, eager: Sequence[object], found: Sequence[torch.Tensor | None], step: float
    ) -> Iterator[Piece]:
        """Every output, slice by slice, then those that all slices make together. `step`: by how
        much inputs move at least."""
        for start, stop in self._plain.ranges():
            block = _running(functools.partial(self._plain.block, start, stop))
            for index, axis in enumerate(self._slicing.outputs):
                value, mine = eager[index], found[index]
                if axis is None or not isinstance(value, torch.Tensor) or mine is None:
                    continue
                wide = cast("torch.Tensor", block[index])
                theirs, own = (_part(x, axis, start, stop).to(wide.device) for x in (value, mine))
                offset = tuple(start * axis.factor * (d == axis.dim) for d in range(wide.ndim))
                filled = [cast("torch.Tensor", x.block(start, stop)[index]) for x in self._filled]
                piece = _piece(index, theirs, own, wide, offset, filled)
                yield self._with_draws(piece, step, (start, stop))
        for index, axis in enumerate(self._slicing.outputs):
            value, mine = eager[index], found[index]
            wide_value = self._plain.whole()[index]
            if axis is None and isinstance(value, torch.Tensor) and mine is not None:
                wide = cast("torch.Tensor", wide_value)
                filled = [cast("torch.Tensor", x.whole()[index]) for x in self._filled]
                theirs, own = (item.to(wide.device) for item in (value, mine))
                piece = _piece(index, theirs, own, wide, (0,) * wide.ndim, filled)
                yield self._with_draws(piece, step, None)

    def _with_draws(self, piece: Piece, step: float, units: tuple[int, int] | None) -> Piece:
        """With what the same part of the output comes to in other evaluations."""
        output = piece.output  # of the piece no function may hold more: it holds them

        def at(kind: str, made: Callable[[int], Evaluation]) -> Perturb:
            return lambda seed: self._draw(output, units, (kind, seed), made)

        mover = at("moved", lambda seed: Evaluation(_mover(seed, step)))
        piece = dataclasses.replace(piece, perturb=mover)

        def noisy(kind: str, rounds: frozenset[str] = frozenset(), times: float = 1.0) -> Perturb:
            return at(
                kind,
                lambda seed: Evaluation(
                    unchanged, lambda: with_rounding_noise(seed, rounds, times)
                ),
            )

        if self._honest:
            piece = dataclasses.replace(
                piece, honest=noisy("honest"), further=noisy("further", times=HONEST)
            )
        if self._honest and self._rounds:
            piece = dataclasses.replace(
                piece,
                permitted=noisy("rounded", self._rounds),
                permitted_further=noisy("rounded further", self._rounds, HONEST),
            )
        return piece

    def _draw(
        self,
        output: int,
        units: tuple[int, int] | None,
        key: tuple[str, int],
        made: Callable[[int], Evaluation],
    ) -> torch.Tensor | None:
        """A part of one output in another evaluation, whose slices share what is whole."""
        if key not in self._drawn:
            self._drawn[key] = self._with(made(key[1]))
        sliced = self._drawn[key]
        value = (sliced.whole() if units is None else sliced.block(*units))[output]
        return _compact(value) if isinstance(value, torch.Tensor) else None


def _piece(
    index: int,
    eager: torch.Tensor,
    found: torch.Tensor,
    wide: torch.Tensor,
    offset: tuple[int, ...],
    filled: Sequence[torch.Tensor],
) -> Piece:
    found, eager, wide = _compact(found), _compact(eager), _compact(wide)
    filled = [_compact(item) for item in filled]
    if not eager.is_floating_point():
        exact = wide if wide.dtype == eager.dtype and wide.shape == eager.shape else None
        return Piece(index, OutputValues(found, eager, None, exact), offset)
    oracle = wide.double()
    if filled:
        special = ~oracle.isfinite() & ~eager.isfinite()
        first, *rest = filled
        same = torch.stack([torch.isclose(first, x, rtol=1e-9, atol=0.0) for x in rest]).all(0)
        oracle = torch.where(same & special, first, oracle)
    return Piece(index, OutputValues(found, eager, oracle), offset)


def _running(call: Callable[[], Result]) -> Result:
    """What `call` gives. Raises Unlike where the graph does not run on a slice."""
    try:
        return call()
    except torch.OutOfMemoryError:
        raise
    except (MissingValue, *NOT_COUNTED) as error:
        words = f"{type(error).__name__}: {one_line(error, 120)}"
        raise SlicesDisagree(f"the graph does not run in slices ({words})") from error


def _mover(seed: int, least: float) -> Change:
    def change(value: torch.Tensor, name: str, start: int) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        number = zlib.crc32(f"{seed} {name} {start}".encode())
        return moved_by_ulp(value.double(), value.dtype, least, number)

    return change


def _filler(size: float) -> Change:
    def change(value: torch.Tensor, name: str, start: int) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        return value.masked_fill(~value.isfinite(), size).double()

    return change


def _compact(value: torch.Tensor) -> torch.Tensor:
    """Without the leading dimensions of one entry: blocks are cut along the first dimension."""
    while value.ndim > 1 and value.shape[0] == 1:
        value = value[0]
    return value


def _part(value: torch.Tensor, axis: Axis, start: int, stop: int) -> torch.Tensor:
    return value.narrow(axis.dim, start * axis.factor, (stop - start) * axis.factor)


def _all_finite(value: torch.Tensor) -> bool:
    if not value.is_floating_point():
        return True
    return all(bool(piece.isfinite().all()) for piece in pieces(value))


def most_unlike(eager: torch.Tensor) -> float:
    """So far eager may be from what slices give, norm-wise: more is another function."""
    return max(UNLIKE, 64 * torch.finfo(eager.dtype).eps)
