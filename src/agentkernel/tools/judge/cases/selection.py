"""Selection of the cases of a judgement: by device, room, sizes, scalars and the source."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING

from agentkernel.domain.problem import ScalarSpec, ShapeSet
from agentkernel.storage.source_text import parse_source, read_literal
from agentkernel.tools.judge.cases.edge_inputs import wide_inputs, zero_sign_matters
from agentkernel.tools.judge.cases.plan import (
    Case,
    LargeShape,
    interpreted_cases,
    measured_cases,
    signs_case,
    state_case,
    wide_case,
)
from agentkernel.tools.judge.cases.shapes import (
    FACTORS,
    CaseShape,
    at_sizes,
    count_elements,
    count_rows,
    odd_shapes,
    past_tile,
    replace_sizes,
    scaled,
    with_least_sizes,
    with_many_elements,
    within,
)
from agentkernel.tools.judge.memory import free_memory_on
from agentkernel.tools.judge.policy.kernel_source import large_numbers, largest_tile, telling_sizes
from agentkernel.tools.judge.settings import JudgeSettings, rule_of
from agentkernel.tools.problem.composite_operators import is_recurrent
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.specialise import specialise

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured


LARGEST_NUMBER, LARGEST_FILLED = 1 << 19, 1 << 21
"""Up to so large a number of a file a tensor of more elements is asked, and of so many at most."""
LARGE = 100.0
"""So many times itself, and of the other sign, is a fraction that is far from its own."""
INTERPRETED_ELEMENTS = 100_000
INTERPRETED_ODD_ELEMENTS = 150_000
ODD_FLOOR = 20_000
ODD_FACTOR = 32
"""In the interpreter an odd set has so many times the declared elements at most: a kernel tiled
for a few would take minutes for many."""
INTERPRETED_ODD_ROWS = 2_500
"""So many rows has an odd set in the interpreter: a program a row takes a millisecond, also where a
row has five elements."""
INTERPRETED_STEPS = 16
"""So many steps of all its sequences has a graph with a recurrent layer in the interpreter: one
depends on the one before, and the programs of one take seconds."""
ODD_ELEMENTS = 1 << 24
LARGER_ELEMENTS = 1 << 28
"""On a GPU a set past the declared sizes may have so many elements."""
STAND_IN_ELEMENTS = 1 << 26
"""Where whole copies of the declared inputs have no room, most is asked with so many elements."""
BYTES_AN_ELEMENT = 200
"""What an element of an input takes while whole copies of it, and of an output of its size, are
compared."""
UNLIMITED = 1 << 62


def judged_graph(captured: Captured, settings: JudgeSettings) -> Captured:
    """The graph whose free sizes the cases vary: none are free for a candidate that holds for the
    declared ones alone."""
    return specialise(captured) if settings.declared_sizes else captured


def plan_cases(
    loaded: LoadedProblem,
    captured: Captured,
    settings: JudgeSettings,
    fits: Callable[[CaseShape], bool] = lambda shape: True,
) -> list[Case]:
    """The cases of one judgement, in order. `fits` says of a shape whether whole copies in fp64
    have room."""
    interpret = settings.device == "cpu"
    limit = UNLIMITED
    if interpret:
        limit = _interpreted(loaded.problem.shape_sets[0], captured, INTERPRETED_ELEMENTS)
    declared: list[CaseShape] = [
        scaled(inputs, captured, limit, index)
        for index, inputs in enumerate(loaded.problem.shape_sets)
    ]
    odd = _odd_shapes(loaded, captured, settings)
    if interpret:
        cases = interpreted_cases(declared, odd, settings.seed, settings.seeds)
    else:
        large = None if fits(declared[0]) else LargeShape(_stand_in(declared[0], captured, fits))
        cases = measured_cases(declared, odd, settings.seed, settings.seeds, large)
    if captured.mutated_buffers or captured.side_effect is not None:
        cases.append(state_case(declared[0], odd, settings.seed))
    if zero_sign_matters(captured):
        cases.append(signs_case(declared[0], odd, settings.seed))
    if wide_inputs(captured):
        cases.append(wide_case(declared[0], odd, settings.seed))
    shifted = rule_of(settings.rule).shifted
    cases = [case for case in cases if shifted or case.distribution != "shifted"]
    # What a write to rows that overlap leaves depends on the order of the writes.
    return [case for case in cases if case.layout != "overlapping" or not captured.mutated_inputs]


def _stand_in(
    shape: CaseShape, captured: Captured, fits: Callable[[CaseShape], bool]
) -> CaseShape | None:
    """The largest scaled shape of at most STAND_IN_ELEMENTS that fits; None where there is none."""
    limit = min(STAND_IN_ELEMENTS, shape.elements // 2)
    while limit > 1:
        found = scaled(shape.inputs, captured, limit, shape.index)
        if found.origin == "declared":
            return None
        if fits(found):
            return found
        limit //= 4
    return None


def other_shape_cases(
    loaded: LoadedProblem, captured: Captured, settings: JudgeSettings
) -> list[Case]:
    """A plain call at each size that the problem does not name: all sizes others, then one."""
    first = loaded.problem.shape_sets[0]
    limit = _larger(settings) if settings.device == "cuda" else 2 * count_elements(first)
    odd = (*_odd_shapes(loaded, captured, settings), *neighbours(first, captured, limit))
    return [Case(shape, "normal", settings.seed + 5) for shape in dict.fromkeys(odd)]


def _larger(settings: JudgeSettings) -> int:
    """Elements of a set past the declared sizes that whole copies have room for."""
    room = free_memory_on(settings.device, settings.device_bytes)
    return LARGER_ELEMENTS if room is None else min(LARGER_ELEMENTS, room.free // BYTES_AN_ELEMENT)


def _odd_shapes(
    loaded: LoadedProblem, captured: Captured, settings: JudgeSettings
) -> tuple[CaseShape, ...]:
    first = loaded.problem.shape_sets[0]
    if settings.device == "cuda":
        larger = _larger(settings)
        return odd_shapes(first, captured, ODD_ELEMENTS, larger, seed=settings.seed)
    few = min(INTERPRETED_ODD_ELEMENTS, max(ODD_FLOOR, ODD_FACTOR * count_elements(first)))
    few = _interpreted(first, captured, few)
    return odd_shapes(first, captured, few, few, INTERPRETED_ODD_ROWS, settings.seed)


def _interpreted(inputs: ShapeSet, captured: Captured, most: int) -> int:
    """Elements of a set in the interpreter, at most `most`."""
    if not any(map(is_recurrent, captured.graph.graph.nodes)):
        return most
    return min(most, INTERPRETED_STEPS * count_elements(inputs) // count_rows(inputs))


def at_constants(
    loaded: LoadedProblem, captured: Captured, source: str, settings: JudgeSettings
) -> list[Case]:
    """Plain calls at sizes that the source itself tells from others, as far as they are small."""
    try:
        sizes = telling_sizes(parse_source(source))
    except SyntaxError:
        return []
    shapes = (
        ()
        if not sizes
        else at_sizes(loaded.problem.shape_sets[0], captured, INTERPRETED_ODD_ELEMENTS, sizes)
    )
    return [Case(shape, "normal", settings.seed + 9) for shape in shapes]


def small_case(plan: Sequence[Case], settings: JudgeSettings) -> Case:
    """A plain case at the smallest sizes of the plan."""
    shapes = [case.shape for case in plan if case.shape.elements > 1] or [plan[0].shape]
    return Case(min(shapes, key=lambda shape: shape.elements), "normal", settings.seed + 8)


def neighbours(inputs: ShapeSet, captured: Captured, limit: int) -> tuple[CaseShape, ...]:
    """The declared sizes but for one, each in turn, then as many elements in another form; as far
    as they take at most `limit` elements.

    A file that looks at one size alone, or at the number of elements alone, raises where all sizes
    are others. It takes these, with a grid and strides that are those of the declared ones.
    """
    declared = {item.symbol: item.size for item in captured.free_dims}
    groups: list[Iterable[Mapping[str, int]]] = [
        [declared | {name: size + more} for more in FACTORS] for name, size in declared.items()
    ]
    groups.append(_traded(declared))
    found = (_first(inputs, captured, group, limit) for group in groups)
    return tuple(CaseShape(item, "odd", 0) for item in found if item is not None)


def _traded(declared: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    """One size halved for another one's double."""
    for half, double in permutations(declared, 2):
        if declared[half] % 2 == 0:
            yield {**declared, half: declared[half] // 2, double: 2 * declared[double]}


def _first(
    inputs: ShapeSet, captured: Captured, group: Iterable[Mapping[str, int]], limit: int
) -> ShapeSet | None:
    """Of a group the first sizes that the graph holds for."""
    for sizes in group:
        found = replace_sizes(inputs, captured.free_dims, sizes)
        if within(found, captured, sizes, limit):
            return found
    return None


def end_cases(
    small: Case,
    asked: Sequence[CaseShape],
    captured: Captured,
    tree: ast.Module,
    limit: int,
    rows: int | None = None,
) -> list[Case]:
    """`small` with sizes of zero and of one; with one past the largest tile of the file `tree`, of
    at most `limit` elements, where none is `asked`; and with a tensor of more elements than the
    largest of the file's numbers that none of those `asked` has, in at most `rows` rows (where
    programs run one after the other, thousands take minutes): offsets may be cut to fewer bits."""
    inputs = small.shape.inputs
    tile = largest_tile(tree)
    longer = past_tile(inputs, captured, limit, tile, asked) if tile else None
    most = max((math.prod(x.shape) for shape in asked for x in shape.inputs.tensors), default=0)
    numbers = large_numbers(tree, most, LARGEST_NUMBER)
    full = (
        with_many_elements(inputs, captured, numbers[-1] + 1, LARGEST_FILLED, rows)
        if numbers
        else None
    )
    found = [*with_least_sizes(inputs, captured), longer, full]
    return [dataclasses.replace(small, shape=shape) for shape in found if shape is not None]


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
