"""Other values of scalar arguments of `forward`: the candidate must be right there, or raise."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

from agentkernel.domain.problem import ScalarSpec, ShapeSet
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.cases.shapes import CaseShape

LARGE = 100.0
"""So many times itself, and of the other sign, is a fraction that is far from its own."""


def scalar_cases(case: Case, large: CaseShape) -> list[Case]:
    """`case` with one scalar argument changed in each; none where there is no number or flag. Of
    the values of each argument one, which the case's seed draws, comes at the `large` shape."""
    chance = random.Random(case.seed)
    found: list[Case] = []
    before = case.shape.inputs.inputs

    def place_of(inputs: ShapeSet) -> int:
        pairs = zip(before, inputs.inputs, strict=True)
        return next(place for place, (one, other) in enumerate(pairs) if one != other)

    for place, group in itertools.groupby(with_other_scalars(case.shape.inputs), key=place_of):
        values = [item.inputs[place] for item in group]
        wide = chance.randrange(len(values))
        for at, value in enumerate(values):
            shape = large if at == wide else case.shape
            specs = (*shape.inputs.inputs[:place], value, *shape.inputs.inputs[place + 1 :])
            changed = dataclasses.replace(shape, inputs=ShapeSet(inputs=specs))
            found.append(dataclasses.replace(case, shape=changed))
    return found


def with_other_scalars(inputs: ShapeSet) -> Iterator[ShapeSet]:
    """The same tensors, each number and flag in turn at other values."""
    longest = max((size for spec in inputs.tensors for size in spec.shape), default=0)
    for position, spec in enumerate(inputs.inputs):
        if not isinstance(spec, ScalarSpec):
            continue
        for value in other_scalars(read_literal(spec.literal), longest):
            changed = ScalarSpec(name=spec.name, literal=repr(value))
            specs = (*inputs.inputs[:position], changed, *inputs.inputs[position + 1 :])
            yield ShapeSet(inputs=specs)


def other_scalars(value: object, longest: int = 0) -> tuple[object, ...]:
    """A flag's other value; a number's neighbours on both sides, zero, its negative and a large
    one, which for an integer is past the `longest` dimension; nothing for what is neither."""
    if isinstance(value, bool):
        return (not value,)
    ends: tuple[float, ...]
    if isinstance(value, int):
        ends = (value + 1, value - 1, 0, -value, abs(value) + longest + 1)
    elif isinstance(value, float):
        ends = (1.5 * value + 0.25, -0.75 * value - 0.125, 0.0, 2.0 + abs(value), -LARGE * value)
    else:
        return ()
    return tuple(x for x in dict.fromkeys(ends) if x != value)
