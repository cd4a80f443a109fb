"""Shapes of the cases: the declared ones, scaled where needed, and sizes off every tile.

A shape counts only where the captured graph covers it. A module that splits a size may run on
another one through broadcasting, with outputs of another form than the captured graph's; such a
shape is no case.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agentkernel.domain.problem import ShapeSet, TensorSpec

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured, FreeDim


LADDER = (257, 127, 65, 33, 17, 7, 3, 1)
ODD_SETS = ((33, 127, 65, 17), (257, 3, 129, 5), (1, 37, 3, 129), (7, 65, 33, 3), (3, 17, 5, 33))
ODD_COUNT = 3
SMALL = (3, 5, 2, 4, 1)
MOST_AT_SIZES = 4
MOST_RESULTS = 1 << 25
"""Elements of all outputs of an odd case: 256 MB in fp64."""
PATIENCE = 8
"""How many times the limit a set may have where the graph holds for no smaller one."""
FACTORS = (1, 2, 4, 8)
"""An odd size that the graph refuses is tried doubled: even, and still off every tile."""


@dataclass(frozen=True)
class CaseShape:
    """One set of inputs with where it comes from: "declared", "scaled" or "odd"."""

    inputs: ShapeSet
    origin: str
    index: int

    @property
    def label(self) -> str:
        """For people."""
        return self.inputs.label

    @property
    def elements(self) -> int:
        """Elements of all tensor inputs together."""
        return count_elements(self.inputs)


def count_elements(inputs: ShapeSet) -> int:
    """Elements of all tensors of `inputs`."""
    return sum(math.prod(spec.shape) for spec in inputs.tensors)


def within(inputs: ShapeSet, captured: Captured, sizes: Mapping[str, int], limit: int) -> bool:
    """Whether the graph holds for `inputs`, in which free symbols are `sizes`, and they are at most
    `limit` elements; what they give is no more than that or `MOST_RESULTS`: few inputs may make a
    large result."""
    if count_elements(inputs) > limit:
        return False
    try:
        few = captured.result_elements(sizes) <= max(limit, MOST_RESULTS)
    except (ZeroDivisionError, AssertionError):  # as in `admits`: there are no such outputs
        return False
    return few and captured.admits(sizes)


@dataclass(frozen=True)
class SizeGroup:
    """Free sizes that change together: symbol -> how many times `size` it is."""

    ratios: Mapping[str, int]
    size: int

    def of(self, size: int) -> dict[str, int]:
        """The size of each symbol where the unit's is `size`."""
        return {name: ratio * size for name, ratio in self.ratios.items()}


def scaled(inputs: ShapeSet, captured: Captured, limit: int, index: int = 0) -> CaseShape:
    """`inputs` with its largest free sizes halved until at most `limit` elements are left.

    Of the sizes on the way that the captured graph holds for, the smallest ones; where all these
    are too large, sizes that it ties keep their ratio, and then their declared values, also where
    that is a few times `limit`; where it holds for none, the reference decides.
    """
    small, last = _halved(inputs, captured, _alone(inputs, captured), limit)
    if count_elements(small) > limit:
        small, _ = _halved(inputs, captured, _tied(inputs, captured), limit)
    if count_elements(small) > limit:
        small, _ = _halved(inputs, captured, _untied(inputs, captured), limit)
    if count_elements(small) > PATIENCE * limit:
        small = last
    return CaseShape(small, "declared" if small == inputs else "scaled", index)


class Halved(NamedTuple):
    """The smallest set on the way that the graph holds for, and the last set, which it may not."""

    small: ShapeSet
    last: ShapeSet


def _halved(inputs: ShapeSet, captured: Captured, units: Sequence[SizeGroup], limit: int) -> Halved:
    sizes = [unit.size for unit in units]
    declared = _declared(inputs, captured)
    small = last = inputs
    while count_elements(last) > limit and units:
        values = [max(unit.of(size).values()) for unit, size in zip(units, sizes, strict=True)]
        largest = values.index(max(values))
        if sizes[largest] <= 2:
            break
        sizes[largest] = max(2, sizes[largest] // 2)
        spread = declared | _spread(units, sizes)
        last = replace_sizes(inputs, captured.free_dims, spread)
        if captured.admits(spread):
            small = last
    return Halved(small, last)


def _spread(units: Sequence[SizeGroup], sizes: Sequence[int]) -> dict[str, int]:
    """The size of every symbol, for these sizes of the units."""
    return {
        name: value
        for unit, size in zip(units, sizes, strict=True)
        for name, value in unit.of(size).items()
    }


def _alone(inputs: ShapeSet, captured: Captured) -> list[SizeGroup]:
    """Every free size by itself."""
    return [SizeGroup({name: 1}, size) for name, size in _declared(inputs, captured).items()]


def _tied(inputs: ShapeSet, captured: Captured) -> list[SizeGroup]:
    """Free sizes of which the graph takes an equation for granted keep their declared ratio."""
    import sympy

    declared = _declared(inputs, captured)
    equations = [guard for guard in captured.guards if isinstance(guard, sympy.Eq)]
    units = []
    for group in _joined(declared, (equation.free_symbols for equation in equations)):
        names = [name for name in declared if name in group]
        common = math.gcd(*(declared[name] for name in names)) or 1
        units.append(SizeGroup({name: declared[name] // common for name in names}, common))
    return units


def _untied(inputs: ShapeSet, captured: Captured) -> list[SizeGroup]:
    """The free sizes that no equation names, such as the batch of pictures whose patches have a
    table of positions."""
    import sympy

    equations = [guard for guard in captured.guards if isinstance(guard, sympy.Eq)]
    named = {str(symbol) for guard in equations for symbol in guard.free_symbols}
    return [unit for unit in _alone(inputs, captured) if not named & set(unit.ratios)]


def _loose(inputs: ShapeSet, captured: Captured) -> list[SizeGroup]:
    """The free sizes that may change while all others are the declared ones, such as the batch of
    rows that meet a vector of weights; those that the graph holds equal change together."""
    import sympy

    declared = _declared(inputs, captured)
    equal = [
        guard.args
        for guard in captured.guards
        if isinstance(guard, sympy.Eq) and all(side.is_Symbol for side in guard.args)
    ]
    units = [
        SizeGroup(dict.fromkeys(group, 1), declared[min(group)])
        for group in _joined(declared, equal)
    ]
    return [
        unit
        for unit in units
        if any(captured.admits(declared | unit.of(size)) for size in (unit.size + 1, 2 * unit.size))
    ]


def _joined(names: Iterable[str], links: Iterable[Iterable[object]]) -> list[set[str]]:
    """The names in groups: those that stand in a link together, at any remove."""
    groups = [{name} for name in names]
    for link in links:
        met = [group for group in groups if group & {str(item) for item in link}]
        if met:
            groups = [group for group in groups if group not in met] + [set().union(*met)]
    return groups


def _declared(inputs: ShapeSet, captured: Captured) -> dict[str, int]:
    """The declared size of every free symbol."""
    return {item.symbol: _size(inputs, item) for item in captured.free_dims}


def count_rows(inputs: ShapeSet) -> int:
    """Rows along the last dimension of the tensor that has the most: a kernel often launches a
    program for each."""
    return max((math.prod(spec.shape[:-1]) for spec in inputs.tensors), default=1)


def odd_shapes(
    inputs: ShapeSet,
    captured: Captured,
    limit: int,
    larger: int | None = None,
    rows: int | None = None,
    seed: int | None = None,
) -> tuple[CaseShape, ...]:
    """Up to three sets off every tile size that the captured graph holds for, and one that `seed`
    draws, at most `limit` elements and `rows` rows each where that can be had; then one past a
    declared size, and one past the declared number of elements, of at most `larger`. Where the
    graph holds for no set, sizes that it ties keep their ratio, and then what cannot change by
    itself its declared size."""
    units = _alone(inputs, captured)
    patterns = ODD_SETS if seed is None else (*ODD_SETS[:3], drawn_sizes(seed), *ODD_SETS[3:])
    found = _odd(inputs, captured, units, limit, rows, patterns)
    if not found:
        units = _tied(inputs, captured)
        found = _odd(inputs, captured, units, limit, rows, patterns)
    if not found:
        units = _loose(inputs, captured)
        found = _odd(inputs, captured, units, limit, rows, patterns)
    most = larger or limit
    past = (
        past_declared_size(inputs, captured, most, units),
        above_declared_size(inputs, captured, most, units),
    )
    most_sets = ODD_COUNT + (seed is not None)
    return (*found[:most_sets], *dict.fromkeys(item for item in past if item is not None))


def drawn_sizes(seed: int) -> tuple[int, ...]:
    """Sizes that no file can have been written for: odd, even, multiples of 16 and of 128, one of
    each kind first, in any order."""
    chance = random.Random(seed)
    kinds = ((2, 64, 1), (2, 64, 0), (16, 8, 0), (128, 2, 0))
    sizes = [step * chance.randint(1, most) + more for step, most, more in kinds]
    chance.shuffle(sizes)
    return tuple(sizes)


def _odd(
    inputs: ShapeSet,
    captured: Captured,
    units: Sequence[SizeGroup],
    limit: int,
    rows: int | None,
    patterns: Sequence[Sequence[int]],
) -> list[CaseShape]:
    free = captured.free_dims
    found: list[CaseShape] = []
    too_large: list[CaseShape] = []
    anywhere, leading = range(len(units)), _leading(inputs, captured, units)
    declared = _declared(inputs, captured)
    for pattern in patterns if units else ():
        sizes = [pattern[i % len(pattern)] for i in range(len(units))]
        while True:
            tried = replace_sizes(inputs, free, declared | _spread(units, sizes))
            if count_elements(tried) > limit:
                places: Sequence[int] = anywhere
            elif rows is not None and count_rows(tried) > rows:
                places = leading
            else:
                break
            largest = max(places, key=lambda place: sizes[place], default=None)
            if largest is None or sizes[largest] == 1:
                break
            sizes[largest] = next(size for size in LADDER if size < sizes[largest])
        admitted = _admitted(inputs, declared | _spread(units, sizes), captured, limit)
        if admitted is None:
            continue
        candidate = CaseShape(admitted, "odd", 0)
        if candidate.elements > limit:
            too_large.append(candidate)
        elif candidate.inputs not in [item.inputs for item in found]:
            found.append(candidate)
    return found or too_large[:1]


def _leading(inputs: ShapeSet, captured: Captured, units: Sequence[SizeGroup]) -> list[int]:
    """Places of the units that have a say in how many rows there are."""
    ranks = {
        i: len(spec.shape) for i, spec in enumerate(inputs.inputs) if isinstance(spec, TensorSpec)
    }
    names = {item.symbol for item in captured.free_dims if item.dim < ranks[item.input_index] - 1}
    return [place for place, unit in enumerate(units) if names & set(unit.ratios)]


def past_declared_size(
    inputs: ShapeSet, captured: Captured, limit: int, units: Sequence[SizeGroup]
) -> CaseShape | None:
    """A set in which one free size is past the declared one, the others small: a launch grid or a
    tile count taken from the declared sizes shows. None where that takes more than `limit`."""
    places = sorted(range(len(units)), key=lambda place: units[place].size)
    tries = (
        [units[place].size + more if i == place else others for i in range(len(units))]
        for place in places
        for others in SMALL
        for more in FACTORS
    )
    return _first_taken(inputs, captured, limit, units, tries)


def above_declared_size(
    inputs: ShapeSet, captured: Captured, limit: int, units: Sequence[SizeGroup]
) -> CaseShape | None:
    """The declared set with one free size a little larger: a launch grid for the declared number of
    elements shows. None where that takes more than `limit`."""
    places = sorted(range(len(units)), key=lambda place: -units[place].size)
    tries = (
        [unit.size + (more if i == place else 0) for i, unit in enumerate(units)]
        for place in places
        for more in FACTORS
    )
    return _first_taken(inputs, captured, limit, units, tries)


def at_sizes(
    inputs: ShapeSet, captured: Captured, limit: int, sizes: Sequence[int]
) -> tuple[CaseShape, ...]:
    """Sets in which one free size is one of `sizes`, the others small; few, the first `sizes` and
    the last free size first."""
    units = _alone(inputs, captured)
    tries = (
        [[size if i == place else others for i in range(len(units))] for others in SMALL]
        for size in sizes
        for place in reversed(range(len(units)))
    )
    found = (_first_taken(inputs, captured, limit, units, item) for item in tries)
    return tuple(itertools.islice((item for item in found if item is not None), MOST_AT_SIZES))


def with_least_sizes(inputs: ShapeSet, captured: Captured) -> tuple[CaseShape, ...]:
    """`inputs` with the first free size zero, with the last one, and with each of them one."""
    sizes = _declared(inputs, captured)
    ends = list(dict.fromkeys([*list(sizes)[:1], *list(sizes)[-1:]]))
    least = [*(sizes | {name: 0} for name in ends), *([dict.fromkeys(sizes, 1)] if sizes else [])]
    return tuple(
        CaseShape(replace_sizes(inputs, captured.free_dims, item), "odd", 0) for item in least
    )


def past_tile(
    inputs: ShapeSet, captured: Captured, limit: int, tile: int, asked: Sequence[CaseShape]
) -> CaseShape | None:
    """A set in which the last free size is past a `tile`; None where one of those `asked` has a
    free size past it anyway."""
    free = captured.free_dims
    if any(_size(shape.inputs, item) > tile for shape in asked for item in free):
        return None
    return next(iter(at_sizes(inputs, captured, limit, [tile + 1])), None)


def with_many_elements(
    inputs: ShapeSet, captured: Captured, least: int, limit: int, rows: int | None = None
) -> CaseShape | None:
    """A set of which one tensor has more than `least` elements and all together at most `limit`, in
    at most `rows` rows each: the last free size that may be so many times as large; None where
    none may."""
    units = _alone(inputs, captured)
    most = max((math.prod(spec.shape) for spec in inputs.tensors), default=0)
    times = least // max(1, most) + 1
    tries = (
        [(times * more if i == place else 1) * unit.size for i, unit in enumerate(units)]
        for place in reversed(range(len(units)))
        for more in FACTORS[:2]
    )
    large = (
        found
        for sizes in tries
        if (found := _first_taken(inputs, captured, limit, units, [sizes])) is not None
    )
    return next(
        (
            x
            for x in large
            if any(math.prod(y.shape) > least for y in x.inputs.tensors)
            and (rows is None or count_rows(x.inputs) <= rows)
        ),
        None,
    )


def _first_taken(
    inputs: ShapeSet,
    captured: Captured,
    limit: int,
    units: Sequence[SizeGroup],
    tries: Iterable[Sequence[int]],
) -> CaseShape | None:
    """The first of `tries` with at most `limit` elements that the graph holds for."""
    declared = _declared(inputs, captured)
    for sizes in tries:
        spread = declared | _spread(units, sizes)
        larger = replace_sizes(inputs, captured.free_dims, spread)
        if within(larger, captured, spread, limit):
            return CaseShape(larger, "odd", 0)
    return None


def _admitted(
    inputs: ShapeSet, sizes: Mapping[str, int], captured: Captured, limit: int
) -> ShapeSet | None:
    """`inputs` with `sizes` times the least factor with which the graph holds for them; where that
    takes more than `limit` elements, with one of them raised, if the graph holds for that."""
    first = None
    for factor in FACTORS:
        raised = {name: factor * size for name, size in sizes.items()}
        if captured.admits(raised):
            first = replace_sizes(inputs, captured.free_dims, raised)
            break
    if first is None or count_elements(first) <= limit:
        return first
    for name, size in sizes.items():
        for factor in FACTORS[1:]:
            raised = {**sizes, name: factor * size}
            single = replace_sizes(inputs, captured.free_dims, raised)
            if within(single, captured, raised, limit):
                return single
    return first


def replace_sizes(inputs: ShapeSet, free: Sequence[FreeDim], sizes: Mapping[str, int]) -> ShapeSet:
    """`inputs` with every free dimension set to its symbol's size."""
    shapes = {
        i: list(spec.shape) for i, spec in enumerate(inputs.inputs) if isinstance(spec, TensorSpec)
    }
    for item in free:
        shapes[item.input_index][item.dim] = sizes[item.symbol]
    return ShapeSet(
        inputs=tuple(
            spec.evolve(shape=tuple(shapes[i])) if isinstance(spec, TensorSpec) else spec
            for i, spec in enumerate(inputs.inputs)
        )
    )


def _size(inputs: ShapeSet, item: FreeDim) -> int:
    spec = inputs.inputs[item.input_index]
    return spec.shape[item.dim] if isinstance(spec, TensorSpec) else 1


def capture_covers(captured: Captured, inputs: ShapeSet, leaves: Sequence[object]) -> bool:
    """True where the reference's output shapes are the captured ones at these sizes."""
    import torch

    sizes: dict[str, int] = {}
    for item in captured.free_dims:
        spec = inputs.inputs[item.input_index]
        if isinstance(spec, TensorSpec):
            sizes[item.symbol] = spec.shape[item.dim]
    nodes = {node.name: node for node in captured.graph.graph.nodes}
    for name, leaf in zip(captured.outputs, leaves, strict=False):
        value = nodes[name].meta.get("val") if name in nodes else None
        if not isinstance(value, torch.Tensor) or not isinstance(leaf, torch.Tensor):
            continue
        if [_at(size, sizes) for size in value.shape] != list(leaf.shape):
            return False
    return True


def _at(size: object, sizes: Mapping[str, int]) -> object:
    """A captured size at concrete values of its symbols; None where it has none there."""
    node = getattr(size, "node", None)
    if node is None:
        return size
    expression = node.expr
    values = {symbol: sizes.get(str(symbol), symbol) for symbol in expression.free_symbols}
    try:
        result = expression.subs(values)
    except (ZeroDivisionError, AssertionError):
        return None
    return int(result) if result.is_number else None
