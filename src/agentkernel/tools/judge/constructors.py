"""Modules of other sizes than the declared one: the candidate must be right for them, or raise.

A constructor that takes a size makes a wider module from the same file, whose kernel may have been
written for the declared width alone: one tile along it, a mask that is never needed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.errors import ProblemError
from agentkernel.tools.judge.cases import Case
from agentkernel.tools.judge.shapes import CaseShape
from agentkernel.tools.problems import LoadedProblem

if TYPE_CHECKING:
    from agentkernel.tools.capture import Captured

LEAST = 4
"""Smaller numbers count something else than elements."""
MOST_SIZES = 3
FACTORS = (3, 2)
"""Three times a size is past the next power of two, and keeps what divides it."""
ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Parameters of a module that is tried have so many elements at most."""


@dataclasses.dataclass(frozen=True)
class Resized:
    """A module of another size, and a case for it."""

    loaded: LoadedProblem
    case: Case


def resized(loaded: LoadedProblem, captured: Captured, case: Case, device: str) -> list[Resized]:
    """For each of the first sizes that the constructor takes a module in which it is larger, with
    `case` at the inputs that go with it."""
    if loaded.live is not None:
        return []
    found = (_first(loaded, captured, case, size, device) for size in sizes(loaded))
    return [item for item in found if item is not None][:MOST_SIZES]


def sizes(loaded: LoadedProblem) -> list[int]:
    """The integers among the constructor's arguments that may be sizes, each once."""
    given = [*loaded.init_args, *loaded.init_kwargs.values()]
    return list(dict.fromkeys(item for item in given if type(item) is int and item >= LEAST))


def _first(
    loaded: LoadedProblem, captured: Captured, case: Case, size: int, device: str
) -> Resized | None:
    for factor in FACTORS:
        changed = _with(loaded, captured, case.shape.inputs, size, factor * size)
        if _elements(changed) <= ELEMENTS[device]:
            inputs = changed.problem.shape_sets[0]
            return Resized(changed, dataclasses.replace(case, shape=CaseShape(inputs, "scaled", 0)))
    return None


def _with(
    loaded: LoadedProblem, captured: Captured, inputs: ShapeSet, size: int, new: int
) -> LoadedProblem:
    """The problem with `new` for `size` in the constructor and wherever the graph fixes it."""
    free = {(item.input_index, item.dim) for item in captured.free_dims}
    specs = tuple(
        spec.model_copy(update={"shape": tuple(_dims(spec.shape, index, free, size, new))})
        if isinstance(spec, TensorSpec)
        else spec
        for index, spec in enumerate(inputs.inputs)
    )
    sets = (ShapeSet(inputs=specs),)
    return dataclasses.replace(
        loaded,
        problem=loaded.problem.model_copy(update={"shape_sets": sets}),
        init_args=tuple(_swapped(item, size, new) for item in loaded.init_args),
        init_kwargs={key: _swapped(item, size, new) for key, item in loaded.init_kwargs.items()},
    )


def _dims(
    shape: Sequence[int], index: int, free: set[tuple[int, int]], size: int, new: int
) -> Iterator[int]:
    for dim, found in enumerate(shape):
        yield new if found == size and (index, dim) not in free else found


def _swapped(value: object, size: int, new: int) -> object:
    return new if type(value) is int and value == size else value


def _elements(loaded: LoadedProblem) -> float:
    """Of the module's parameters and buffers; no end where it is not built."""
    try:
        module = loaded.build(seed=0, device="meta")
    except (ProblemError, NotImplementedError):
        return math.inf
    return float(sum(value.numel() for value in module.state_dict().values()))
