"""Which calls make up a judgement? Seeds, distributions, shapes, orders; most telling first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentkernel.tools.judge.shapes import CaseShape
from agentkernel.tools.judge.values import Distribution

Order = Literal["ascending", "reversed", "shuffled"]
Layout = Literal["contiguous", "strided"]
CYCLE: tuple[Distribution, ...] = ("normal", "uniform", "large", "tiny")
CONSTANT: tuple[Distribution, ...] = ("zeros", "ones")
SEED_STEP = 7919


@dataclass(frozen=True)
class Case:
    """One call of the candidate. An optional case is left out when the time is up."""

    shape: CaseShape
    distribution: Distribution
    seed: int
    order: Order = "ascending"
    required: bool = True
    layout: Layout = "contiguous"

    @property
    def label(self) -> str:
        """For people: distribution, seed, shapes, order, layout."""
        order = "" if self.order == "ascending" else f", programs {self.order}"
        layout = "" if self.layout == "contiguous" else ", strided inputs"
        return f"{self.distribution}, seed {self.seed}, {self.shape.label}{order}{layout}"


def interpreted_cases(
    declared: Sequence[CaseShape], odd: Sequence[CaseShape], seed: int, seeds: int
) -> list[Case]:
    """The seeds spread over distributions and shapes, program orders, then what time allows."""
    primary = declared[0]
    shapes = [primary, odd[0] if odd else primary, primary]
    shapes += list(odd[1:]) or [primary]
    cases = [
        Case(shapes[i % len(shapes)], CYCLE[i % len(CYCLE)], seed + i * SEED_STEP)
        for i in range(max(1, seeds))
    ]
    cases = _with_strides(cases, [primary, *odd])
    cases.insert(1, Case(primary, "normal", seed, "reversed"))
    used = {case.shape.label for case in cases}
    cases += [
        Case(shape, "normal", seed + SEED_STEP)
        for shape in [*declared[1:], *odd]
        if shape.label not in used
    ]
    smallest = min([primary, *odd], key=lambda shape: shape.elements)
    extra = [Case(smallest, name, seed, required=False) for name in CONSTANT]
    extra += [Case(primary, "own", seed, required=False)]
    extra += [Case(shape, "normal", seed, "shuffled", required=False) for shape in odd[:1]]
    extra += [Case(smallest, name, seed + 1, required=False) for name in CYCLE]
    return cases + extra


def measured_cases(
    declared: Sequence[CaseShape], odd: Sequence[CaseShape], seed: int, seeds: int
) -> list[Case]:
    """On a GPU: every seed at the real shapes, every distribution off the tile size."""
    primary = declared[0]
    cases = [
        Case(primary, CYCLE[i % len(CYCLE)], seed + i * SEED_STEP) for i in range(max(1, seeds))
    ]
    cases += [Case(shape, "normal", seed + SEED_STEP) for shape in declared[1:]]
    cases += [
        Case(shape, name, seed + (i + 1) * SEED_STEP)
        for i, shape in enumerate(odd)
        for name in CYCLE
    ]
    smallest = min([primary, *odd], key=lambda shape: shape.elements)
    cases += [Case(smallest, name, seed) for name in CONSTANT]
    cases.append(Case(_strided([primary, *odd]), "normal", seed + 1, layout="strided"))
    return [*cases, Case(primary, "own", seed, required=False)]


def _with_strides(cases: Sequence[Case], shapes: Sequence[CaseShape]) -> list[Case]:
    """The last of several seeds gets strided inputs; where its shape has no strides to speak of, a
    case of its own follows."""
    last = cases[-1]
    if len(cases) >= len(CYCLE) and _telling(last.shape):
        return [*cases[:-1], dataclasses.replace(last, layout="strided")]
    return [*cases, Case(_strided(shapes), "normal", last.seed, layout="strided")]


def _telling(shape: CaseShape) -> bool:
    """True where strides mean something: no dimension of size 1."""
    return all(min(spec.shape, default=1) > 1 for spec in shape.inputs.tensors)


def _strided(shapes: Sequence[CaseShape]) -> CaseShape:
    """Of `shapes` in which strides mean something, the one with the shortest long side."""
    telling = [shape for shape in shapes if _telling(shape)]
    return min(telling or shapes, key=_longest)


def _longest(shape: CaseShape) -> int:
    return max((size for spec in shape.inputs.tensors for size in spec.shape), default=1)
