"""The population of honest evaluations of one call, for values and for index outputs.

Which of two equal values a maximum, a sort or a top-k names is not defined, nor is the place of
the maximum of a row of NaN; which of two values an ulp apart is the larger one depends on the
order of the sums before it. An index that differs from the reference's is right where the value
that it points at, in fp64, is as large as the reference's, up to what honest evaluations do to
the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.tools.judge.reference.rounding_noise import (
    RoundingNoise,
    evaluate,
    named_arguments,
)

if TYPE_CHECKING:
    from torch import nn

    from agentkernel.tools.judge.comparison.errors import Perturb


INDEX_OPERATORS = {
    **dict.fromkeys(("argmax", "argmin"), 0),
    **dict.fromkeys(("topk", "sort", "max", "min", "kthvalue", "median", "nanmedian", "mode"), 1),
    **dict.fromkeys(("cummax", "cummin"), 1),
}
"""Operators that point at elements of their first argument, and which output does."""
DISTINCT = ("topk", "sort")
FOLLOWED = ("_to_copy", "clone", "copy", "detach", "alias")
DRAWS = 4
ROOM = 4.0
"""Values may be apart by so many times what honest evaluations move either of them."""
ULPS = 8


@dataclass(frozen=True)
class IndexOutput:
    """Indices `places` into dimension `dim` of `source` (None: into all of it, flat). `stable`:
    those of equal values ascend."""

    places: torch.Tensor
    source: torch.Tensor
    dim: int | None
    distinct: bool
    stable: bool = False


class IndexOutputs(RoundingNoise):  # type: ignore[no-untyped-call]
    """Notes what indices point at. Without a `seed` nothing is moved."""

    def __init__(self, seed: int | None) -> None:
        super().__init__(seed or 0)
        self._moves = seed is not None
        self.seen: list[IndexOutput] = []

    def __torch_dispatch__(  # type: ignore[no-untyped-def] # torch's own signature
        self, func, types, args=(), kwargs=None
    ):
        """Run `func`, and note the indices that it returns."""
        if self._moves:
            result = super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        else:
            result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        given = named_arguments(func, args, kwargs or {})
        source = args[0] if args else None
        if name in INDEX_OPERATORS and isinstance(source, torch.Tensor):
            places = (
                result
                if INDEX_OPERATORS[name] == 0
                else result[1]
                if isinstance(result, tuple)
                else 0
            )
            if isinstance(places, torch.Tensor) and places.dtype == torch.int64:
                whole = given.get("dim") is None
                dim = None if whole else cast("int", given["dim"]) % max(1, source.ndim)
                if dim is not None and source.ndim != places.ndim:
                    places = places.unsqueeze(dim)
                kept = source.detach().clone()
                stable = bool(given.get("stable"))
                self.seen.append(IndexOutput(places, kept, dim, name in DISTINCT, stable))
        elif isinstance(source, torch.Tensor) and isinstance(result, torch.Tensor):
            pick = self.of(source) if name in FOLLOWED else None
            if pick is not None and not result.is_floating_point():
                places = result.reshape(pick.places.shape)
                self.seen.append(dataclasses.replace(pick, places=places))
        return result

    def of(self, leaf: torch.Tensor) -> IndexOutput | None:
        """What `leaf` points at, where it is such indices or a view of all of them."""
        for pick in reversed(self.seen):
            same = pick.places.data_ptr() == leaf.data_ptr() and pick.places.dtype == leaf.dtype
            if same and pick.places.numel() == leaf.numel() and _in_order(leaf, pick.places):
                return pick
        return None


def _in_order(leaf: torch.Tensor, places: torch.Tensor) -> bool:
    """Whether the elements of two views of the same memory come in the same order."""
    if leaf.shape == places.shape:
        return leaf.stride() == places.stride()
    return leaf.is_contiguous() and places.is_contiguous()


def points_at_equal_value(
    model: nn.Module,
    inputs: Sequence[object],
    training: bool,
    index: int,
    found: torch.Tensor,
    eager: torch.Tensor,
) -> bool | None:
    """Whether output `index`, `found`, points at values as good as those of eager's indices; None
    where it is not known to be indices."""
    exact = IndexOutputs(None)
    leaves = evaluate(model, inputs, training, exact, double=True)
    leaf = leaves[index] if leaves is not None and index < len(leaves) else None
    pick = exact.of(leaf) if isinstance(leaf, torch.Tensor) else None
    if pick is None or leaf is None or cast("torch.Tensor", leaf).shape != found.shape:
        return None
    mine, theirs = (item.reshape(pick.places.shape).long() for item in (found, eager))
    size = pick.source.numel() if pick.dim is None else pick.source.shape[pick.dim]
    if bool(((mine < 0) | (mine >= size)).any()) or (pick.distinct and _repeats(mine, pick.dim)):
        return False
    values = [_at(pick.source, pick.dim, place) for place in (mine, theirs, pick.places)]
    if pick.stable and _descends(mine, values[0], cast("int", pick.dim)):
        return False
    if not pick.source.is_floating_point():
        # 64 bits tell apart what fp64 does not.
        return bool(((values[0] == values[1]) | (values[0] == values[2])).all())
    values = [value.double() for value in values]
    room = _room(model, inputs, training, index, pick, (mine, theirs))
    near = ((values[0] - values[1]).abs() <= room) | ((values[0] - values[2]).abs() <= room)
    same = (values[0] == values[1]) | (values[0].isnan() & values[1].isnan())
    return bool((near | same | (mine == theirs)).all())


def _room(
    model: nn.Module,
    inputs: Sequence[object],
    training: bool,
    index: int,
    pick: IndexOutput,
    places: Sequence[torch.Tensor],
) -> torch.Tensor:
    """How far apart values at `places` may be and still be called equal."""
    values = [_at(pick.source, pick.dim, place).double() for place in places]
    dtype = torch.float32
    off = torch.zeros_like(values[0])
    for draw in range(DRAWS):
        mode = IndexOutputs(draw)
        leaves = evaluate(model, inputs, training, mode)
        leaf = leaves[index] if leaves is not None else None
        moved = mode.of(leaf) if isinstance(leaf, torch.Tensor) else None
        if moved is None or moved.source.shape != pick.source.shape:
            break
        dtype = moved.source.dtype
        for place, value in zip(places, values, strict=True):
            there = _at(moved.source, pick.dim, place).double()
            off = torch.maximum(off, torch.nan_to_num((there - value).abs(), 0.0, 0.0, 0.0))
    if not dtype.is_floating_point:
        return off
    floor = torch.finfo(dtype).tiny + ULPS * torch.finfo(dtype).eps * values[1].abs()
    return torch.maximum(ROOM * off, torch.nan_to_num(floor, 0.0, 0.0, 0.0))


def _at(source: torch.Tensor, dim: int | None, places: torch.Tensor) -> torch.Tensor:
    if dim is None or source.ndim == 0:
        return source.reshape(-1)[places]
    return source.gather(dim, places)


def _descends(places: torch.Tensor, values: torch.Tensor, dim: int) -> bool:
    """Whether of two equal values beside each other the later one comes first."""
    if places.ndim == 0:
        return False
    return bool(((values.diff(dim=dim) == 0) & (places.diff(dim=dim) < 0)).any())


def _repeats(places: torch.Tensor, dim: int | None) -> bool:
    ordered = places.sort(dim=-1 if dim is None else dim).values
    return bool((ordered.diff(dim=-1 if dim is None else dim) == 0).any())


KEPT_BYTES = 1 << 28
"""Evaluations whose outputs are smaller are kept for the other outputs of the same call."""


class Population:
    """Made as they are asked for. `rounds` names the kinds of products that PyTorch's own flags let
    round to TF32 ("conv", "mm")."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[object],
        training: bool,
        rounds: frozenset[str] = frozenset(),
    ) -> None:
        self._model = model
        self._inputs = list(inputs)
        self._training = training
        self._rounds = rounds
        self._kept: dict[tuple[int, bool, float], list[object] | None] = {}

    def honest(self, index: int, times: float = 1.0) -> Perturb:
        """Output `index` by the number of the evaluation; None where the module does not run so.
        Every result in it moves `times` as far as in an honest one."""
        return lambda draw: self._output(index, draw, False, times)

    def permitted(self, index: int, times: float = 1.0) -> Perturb | None:
        """The same with products rounded as PyTorch's flags permit; None where they permit none."""
        return (lambda draw: self._output(index, draw, True, times)) if self._rounds else None

    def points_as_well(self, index: int, found: torch.Tensor, eager: torch.Tensor) -> bool | None:
        """Whether indices `found` point at values as good as those of eager's; None
        where they are not known to be indices."""
        return points_at_equal_value(self._model, self._inputs, self._training, index, found, eager)

    def _output(self, index: int, draw: int, rounded: bool, times: float) -> torch.Tensor | None:
        key = (draw, rounded, times)
        leaves = self._kept[key] if key in self._kept else self._draw(*key)
        value = leaves[index] if leaves is not None and index < len(leaves) else None
        return value if isinstance(value, torch.Tensor) else None

    def _draw(self, draw: int, rounded: bool, times: float) -> list[object] | None:
        mode = RoundingNoise(draw, self._rounds if rounded else frozenset(), times)
        leaves = evaluate(self._model, self._inputs, self._training, mode)
        size = sum(item.nbytes for item in leaves or () if isinstance(item, torch.Tensor))
        if size <= KEPT_BYTES:
            self._kept[draw, rounded, times] = leaves
        return leaves
