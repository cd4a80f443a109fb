"""The plan of a judgement: seeds, distributions, shapes, layouts and repetitions of calls.

The order of the cases is shuffled by the seed.
"""

from __future__ import annotations

import dataclasses
import operator
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentkernel.tools.judge.cases.edge_inputs import Edge
from agentkernel.tools.judge.cases.layouts import Layout
from agentkernel.tools.judge.cases.shapes import CaseShape
from agentkernel.tools.judge.cases.values import Distribution
from agentkernel.tools.judge.comparison.errors import ROW

Order = Literal["ascending", "reversed", "shuffled"]
Change = Literal["again", "training", "one", "few", "swap", "weights", "nan", "values", "next"]
Kind = Literal["", "written", "activations", "frozen", "graded"]
Module = Literal["", "second", "rebuilt", "replaced"]
CYCLE: tuple[Distribution, ...] = ("normal", "uniform", "large", "tiny", "sparse")
SPECIAL: tuple[Distribution, ...] = ("constant", "nan", "inf")
CONSTANT: tuple[Distribution, ...] = ("zeros", "ones")
SEED_STEP = 7919
MODULES: tuple[Module, ...] = ("second", "rebuilt", "replaced")
MODULE_WORDS: dict[Module, str] = {
    "second": "a second module of the class",
    "rebuilt": "another module at the address of one that is gone",
    "replaced": "other parameter objects",
}
MODULE_STEP = 104_729
KINDS: tuple[Kind, ...] = ("", "written", "frozen", "activations", "graded")
KIND_WORDS: dict[Kind, str] = {
    "written": "inputs written to in place before",
    "activations": "inputs that another layer computed",
    "frozen": "frozen parameters",
    "graded": "parameters with gradients",
}
RECORDED = 3
"""One case of so many is asked with gradients on."""
FEW_IN_BOTH = 1 << 16
MORE = 6
"""One case of so many is asked in both modes where a file may tell them apart."""
GRADIENT_WORDS = re.compile(r"grad|leaf")
MODE_WORDS = re.compile(r"\btraining\b|\btrain\b|\beval\b")
LARGE_REQUIRED = 2
STATIC_FACTOR = 4
"""Where no shape has so many times fewer elements than the declared one, special values take as
long as any others and are tried while there is time, unless they are few elements anyway."""
FEW_ELEMENTS = 4096
WORDS: dict[Change, str] = {
    "again": "the same call again with gradients on",
    "training": "the same call again in training mode",
    "one": "one element changed in place",
    "few": "a few elements changed in place",
    "swap": "two rows swapped in place",
    "weights": "only the weights changed in place",
    "nan": "one weight changed to NaN in place",
    "values": "other values in the same memory",
    "next": "the call after, from the state that the one before left",
}


@dataclass(frozen=True)
class FollowUp:
    """A further call on the memory of the one before, with this change made to it in place."""

    change: Change
    order: Order = "ascending"


@dataclass(frozen=True)
class Case:
    """One call of the candidate, then its `follow_ups`. An optional case is left out when the time
    is up. `after` says what an echo has changed; `training` calls in training mode, `gradients` as
    a user does who has not switched them off."""

    shape: CaseShape
    distribution: Distribution
    seed: int
    order: Order = "ascending"
    required: bool = True
    layout: Layout = "contiguous"
    follow_ups: tuple[FollowUp, ...] = ()
    after: str = ""
    training: bool = False
    gradients: bool = False
    primary: bool = False
    edge: Edge = ""
    module: Module = ""
    """Which module is called: the first one, or one that a cache may take for it."""
    draws: int | None = None
    """The seed that torch's generator is given before the call; None leaves it as it is."""
    variant: str = ""
    """What is another about the module, or the call."""
    default: str = ""
    """The default dtype of the caller, where that is not torch's own."""
    kind: Kind = ""
    """What autograd knows of inputs and parameters that says nothing about their values."""

    @property
    def label(self) -> str:
        """For people: distribution, seed, shapes, order, layout, what came before."""
        words = [f"{self.distribution}, seed {self.seed}, {self.shape.label}"]
        words += [] if self.order == "ascending" else [f"programs {self.order}"]
        words += [] if self.layout == "contiguous" else [f"{self.layout} inputs"]
        words += [self.edge] if self.edge else []
        words += [MODULE_WORDS[self.module]] if self.module else []
        words += [KIND_WORDS[self.kind]] if self.kind else []
        words += [self.after] if self.after else []
        words += ["gradients on"] if self.gradients and not self.after else []
        words += ["training mode"] if self.training else []
        words += [self.variant] if self.variant else []
        words += [f"default dtype {self.default}"] if self.default else []
        return ", ".join(words)

    def followed_up(self, follow_up: FollowUp) -> Case:
        """The case of a further call."""
        return dataclasses.replace(
            self,
            order=follow_up.order,
            follow_ups=(),
            after=WORDS[follow_up.change],
            gradients=self.gradients or follow_up.change == "again",
            training=self.training or follow_up.change == "training",
            primary=False,
        )


class SourceModes(NamedTuple):
    """What a file may tell apart, by the words in its text: whether gradients are recorded, and
    the mode of a module."""

    gradients: bool
    training: bool


def source_modes(source: str) -> SourceModes:
    """What `source` may tell apart."""
    return SourceModes(bool(GRADIENT_WORDS.search(source)), bool(MODE_WORDS.search(source)))


@dataclass(frozen=True)
class LargeShape:
    """What is known of a first shape that has no room for whole copies in fp64: the shape at which
    most is asked instead, None where the module holds for no other."""

    stand_in: CaseShape | None


def interpreted_cases(
    declared: Sequence[CaseShape], odd: Sequence[CaseShape], seed: int, seeds: int
) -> list[Case]:
    """The seeds spread over distributions and shapes, program orders, then what time allows."""
    primary, small = declared[0], small_shape(declared[0], odd)
    cheap = STATIC_FACTOR * small.elements <= primary.elements or small.elements <= FEW_ELEMENTS
    first = Case(
        primary,
        "normal",
        seed,
        primary=True,
        follow_ups=(FollowUp("again", "reversed"), FollowUp("one")),
    )
    shapes = [small, odd[0] if odd else primary, *list(odd[1:2]), small]
    spread = [
        Case(shapes[i % len(shapes)], CYCLE[(i + 1) % len(CYCLE)], seed + (i + 1) * SEED_STEP)
        for i in range(max(1, seeds) - 1)
    ]
    cases = [first, *spread, *_laid_out(small, seed + 1)]
    cases += [
        Case(shape, "normal", seed + SEED_STEP)
        for shape in [*declared[1:], *odd]
        if shape.label not in {case.shape.label for case in cases}
    ]
    special = [Case(small, name, seed + 2, required=cheap) for name in (*SPECIAL, *CONSTANT)]
    turns = (FollowUp("swap"), FollowUp("nan"))
    special += [Case(small, "sorted", seed + 3, follow_ups=turns)]
    special += [Case(small, "shifted", seed + 5, layout="sliced")]
    special += [Case(_wide_rows(primary, odd), "rows", seed + 13)]
    special += _apart(odd[0] if odd else primary, seed)
    extra = [Case(primary, "own", seed, required=False)]
    extra += [Case(shape, "normal", seed, "shuffled", required=False) for shape in odd[:1]]
    return [*shuffled([*cases, *special], seed), *extra]


def measured_cases(
    declared: Sequence[CaseShape],
    odd: Sequence[CaseShape],
    seed: int,
    seeds: int,
    large: LargeShape | None = None,
) -> list[Case]:
    """On a GPU: every seed at the real shapes, every distribution off the tile size. Where the
    first shape is `large`, plain values alone are asked for there, and all else at its stand-in; an
    own case of the stand-in makes up for the calls that are not repeated at the large shape."""
    primary, small = declared[0], small_shape(declared[0], odd)
    follow_ups = (FollowUp("again"), FollowUp("one"), FollowUp("weights"))
    cases = [Case(primary, "normal", seed, primary=True, follow_ups=follow_ups)]
    often = primary
    if large is not None and large.stand_in is not None:
        often = large.stand_in
        cases.append(Case(often, "normal", seed, follow_ups=follow_ups))
    cases += [
        Case(often, CYCLE[i % len(CYCLE)], seed + i * SEED_STEP) for i in range(1, max(1, seeds))
    ]
    cases += [Case(shape, "normal", seed + SEED_STEP) for shape in [*declared[1:], *odd]]
    names = (*CYCLE[1:], *SPECIAL, *CONSTANT)
    places = [shape for shape in odd if shape.elements <= small.elements * 100] or [small]
    cases += [
        Case(places[i % len(places)], name, seed + (i + 1) * SEED_STEP)
        for i, name in enumerate(names)
    ]
    cases += [Case(small, name, seed + 2) for name in SPECIAL]
    cases += [*_laid_out(small, seed + 1)]
    turns = (FollowUp("swap"), FollowUp("few"), FollowUp("values"), FollowUp("nan"))
    cases += [Case(small, "sorted", seed + 3, follow_ups=turns)]
    cases += [
        Case(shape, "shifted", seed + 5, layout="sliced")
        for shape in dict.fromkeys((small, places[0]))
    ]
    cases += [Case(_wide_rows(primary, odd), "rows", seed + 13), *_apart(places[0], seed)]
    if large is not None:
        cases = _without_large(cases, primary)
    return [*shuffled(cases, seed), Case(often, "own", seed, required=False)]


def _without_large(cases: Sequence[Case], large: CaseShape) -> list[Case]:
    """Of the cases at the large shape the first two are required, the others as time allows."""
    places = [place for place, case in enumerate(cases) if case.shape == large]
    optional = set(places[LARGE_REQUIRED:])
    return [
        dataclasses.replace(case, required=False) if place in optional else case
        for place, case in enumerate(cases)
    ]


def in_turns(cases: Sequence[Case], fits: Callable[[CaseShape], bool]) -> list[Case]:
    """The same cases, a few of them, at shapes that `fits` takes, on other modules of the class,
    with weights of their own: a call of the first one comes before each."""
    found = list(cases)
    wanted = list(MODULES)
    plain = False
    for place, case in enumerate(found):
        fit = case.distribution in ("normal", "uniform") and case.required
        spare = not (case.edge or case.follow_ups or case.primary)
        if wanted and plain and fit and spare and fits(case.shape):
            seed = case.seed + MODULE_STEP * (place + 1)
            found[place] = dataclasses.replace(case, module=wanted.pop(0), seed=seed)
            plain = False
        else:
            plain = True
    return found


def in_modes(
    cases: Sequence[Case], fits: Callable[[CaseShape], bool], told: SourceModes, seed: int
) -> list[Case]:
    """The same cases, those at shapes that `fits` takes on tensors of each `Kind` in turn, and one
    of `RECORDED` with gradients on. What a file may tell apart (`told`) is asked both ways instead:
    the same call again, of plain values at the largest sizes, of tensors with steps and of NaN
    always, of others as the seed says."""
    chance = random.Random(seed)
    kinds = chance.sample(KINDS, len(KINDS))
    recorded, again, trained = (chance.randrange(many) for many in (RECORDED, MORE, MORE))
    open_to = [case for case in cases if case.required and fits(case.shape)]
    ends = [
        max((case.shape.elements for case in open_to), default=0),
        max((_width(case.shape) for case in open_to), default=0),
    ]
    found = list(cases)
    for place, case in enumerate(cases):
        if case not in open_to:
            continue
        at_end = [case.shape.elements, _width(case.shape)]
        plain = case.distribution == "normal" and any(map(operator.eq, at_end, ends))
        always = plain or case.layout in ("strided", "stepped") or case.distribution == "nan"
        asked = {follow_up.change for follow_up in case.follow_ups}
        alone = case.module or "next" in asked
        once = not alone and "again" not in asked
        drawn = [always or place % MORE == again, plain or place % MORE == trained]
        more = [FollowUp("again")] if told.gradients and once and drawn[0] else []
        more += [FollowUp("training")] if told.training and not alone and drawn[1] else []
        found[place] = dataclasses.replace(
            case,
            kind="" if case.primary else kinds[place % len(kinds)],
            gradients=once and not told.gradients and place % RECORDED == recorded,
            follow_ups=(*case.follow_ups, *more),
        )
    return found


def in_both_modes(case: Case, told: SourceModes) -> Case:
    """The case, and the same call again in each mode that a file may tell apart; where it has so
    many elements that it takes as long as all others, by itself."""
    few = case.shape.elements <= FEW_IN_BOTH
    more = [FollowUp("again")] if few and told.gradients else []
    more += [FollowUp("training")] if few and told.training else []
    return dataclasses.replace(case, follow_ups=(*case.follow_ups, *more))


def _width(shape: CaseShape) -> int:
    """The longest last dimension."""
    return max((spec.shape[-1] for spec in shape.inputs.tensors if spec.shape), default=0)


def training_case(declared: CaseShape, odd: Sequence[CaseShape], seed: int) -> Case:
    """One call in training mode, at the smallest shape of which batch statistics make sense."""
    return Case(small_shape(declared, odd), "normal", seed + 4, training=True)


def signs_case(declared: CaseShape, odd: Sequence[CaseShape], seed: int) -> Case:
    """Zeros of both signs among the inputs."""
    return Case(small_shape(declared, odd), "normal", seed + 7, edge="zeros of both signs")


def state_case(declared: CaseShape, odd: Sequence[CaseShape], seed: int) -> Case:
    """Three calls in a row, each from the state that the one before left."""
    again = (FollowUp("next"), FollowUp("next"))
    return Case(small_shape(declared, odd), "normal", seed + 6, follow_ups=again)


def small_shape(primary: CaseShape, odd: Sequence[CaseShape]) -> CaseShape:
    """Of the shapes in which strides mean something, the one with the fewest elements."""
    telling = [shape for shape in (primary, *odd) if _telling(shape)]
    return min(telling or [primary, *odd], key=lambda shape: shape.elements)


def shuffled(cases: Sequence[Case], seed: int) -> list[Case]:
    """The same cases in an order that the seed decides: no call announces the next one."""
    mixed = list(cases)
    random.Random(seed).shuffle(mixed)
    return mixed


def _laid_out(shape: CaseShape, seed: int) -> list[Case]:
    few = (FollowUp("few"), FollowUp("weights"))
    deep = any(len(spec.shape) > 2 for spec in shape.inputs.tensors)
    return [
        *([Case(shape, "normal", seed + 12, layout="permuted")] if deep else []),
        *([Case(shape, "normal", seed + 14, layout="swapped")] if deep else []),
        Case(shape, "normal", seed, layout="strided"),
        Case(shape, "normal", seed + 1, layout="stepped"),
        Case(shape, "normal", seed, layout="expanded"),
        Case(shape, "normal", seed + 15, layout="overlapping"),
        Case(shape, "uniform", seed, layout="offset", follow_ups=few),
    ]


def _apart(shape: CaseShape, seed: int) -> list[Case]:
    """Rows that one element stands apart from, and lines that one outweighs."""
    return [Case(shape, "spiked", seed + 10), Case(shape, "peaked", seed + 11)]


def wide_case(declared: CaseShape, odd: Sequence[CaseShape], seed: int) -> Case:
    """Integers over the range of their type, in rows in which some lie beside each other."""
    return Case(_wide_rows(declared, odd), "wide", seed + 12)


def _wide_rows(primary: CaseShape, odd: Sequence[CaseShape]) -> CaseShape:
    """The smallest shape in which every row is compared by its own size: of `ROW` elements."""
    wide = [
        shape
        for shape in (primary, *odd)
        if _telling(shape) and all(spec.shape[-1:] >= (ROW,) for spec in shape.inputs.tensors)
    ]
    return min(wide, key=lambda shape: shape.elements) if wide else small_shape(primary, odd)


def _telling(shape: CaseShape) -> bool:
    """True where strides mean something: no dimension of size 1."""
    return all(min(spec.shape, default=1) > 1 for spec in shape.inputs.tensors)


@dataclass(frozen=True)
class NotApplicable:
    """The reference itself does not take this case."""

    reason: str
    raised: bool = False
    out_of_memory: bool = False
