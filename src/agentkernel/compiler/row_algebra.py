"""Exact algebra of reductions in the IR: fewer sweeps over a row, fewer stored values.

A reduction over everything of what depends on rows folds each row first, in the rows' own kernel.
A sum along a softmax's row that is linear in the softmax or its logarithm is taken apart into sums
that wait for neither the row's maximum nor its sum, for the sweep that finds those:
sum(p * (log p - log q)) = sum(e**(x - m) * ((x - m) - (y - n))) / z - log z + log w.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import torch

from agentkernel.compiler.ir import ONE, ExpSums, GraphBuilder, Node, Shape, WeightedSum, numel

FOLDED = ("sum", "prod", "max", "min", "any", "all")
"""Reductions whose parts may be folded in any grouping."""


def with_row_algebra(outputs: Sequence[Node]) -> tuple[Node, ...]:
    """The same values by fewer sweeps and stores."""
    outputs = tuple(outputs)
    outputs = replaced(outputs, _rows_first(outputs))
    return replaced(outputs, _in_one_sweep(outputs))


def _nodes(outputs: Iterable[Node]) -> list[Node]:
    """All nodes behind the outputs, producers first."""
    order: dict[Node, None] = {}
    waiting = [(node, False) for node in reversed(list(outputs))]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            order.setdefault(node)
        elif node not in order:
            waiting.append((node, True))
            waiting += [(arg, False) for arg in reversed(node.args)]
    return list(order)


def replaced(outputs: tuple[Node, ...], found: Mapping[Node, Node]) -> tuple[Node, ...]:
    """The outputs with other nodes in the places of some, wherever these are read."""
    new: dict[Node, Node] = {}

    def made(node: Node) -> Node:
        node = found.get(node, node)
        if node not in new:
            args = tuple(made(arg) for arg in node.args)
            kept = all(one is other for one, other in zip(args, node.args, strict=True))
            new[node] = node if kept else replace(node, args=args)
        return new[node]

    for node in _nodes(outputs) if found else ():  # producers first: the stack stays short
        made(node)
    return tuple(made(node) for node in outputs) if found else outputs


def all_replaced(
    outputs: Sequence[Node], found: Callable[[tuple[Node, ...]], Iterator[Mapping[Node, Node]]]
) -> tuple[Node, ...]:
    """The outputs with the first thing `found` in the places of others, until there is none."""
    outputs = tuple(outputs)
    while (first := next(found(outputs), None)) is not None:
        outputs = replaced(outputs, first)
    return outputs


def _axes(node: Node) -> tuple[int, ...]:
    """The axes along which a reduction or scan runs; none of other nodes."""
    found = node.attrs[0] if node.kind in ("reduce", "scan") else ()
    if isinstance(found, int):
        return (found,)
    assert isinstance(found, tuple)
    return found


def _alongside(node: Node) -> list[Node]:
    """What has its axes in the same places as `node`, of what it is computed from."""
    if node.kind in ("library", "input") or node.op in ("reshape", "permute", "slice"):
        return []
    return [arg for arg in node.operands if len(arg.shape) == len(node.shape)]


def _rows_first(outputs: Sequence[Node]) -> dict[Node, Node]:
    """Reductions that fold more axes than those below them -> the same in two steps."""
    found: dict[Node, Node] = {}
    below: dict[Node, frozenset[tuple[int, ...]]] = {}
    for node in _nodes(outputs):
        axes = _axes(node)
        inner = frozenset[tuple[int, ...]]().union(*(below[arg] for arg in _alongside(node)))
        if node.kind == "reduce" and node.op in FOLDED and len(inner) == 1:
            (rows,) = inner
            value = node.args[0]
            if set(rows) < set(axes) and any(value.shape[axis] != 1 for axis in rows):
                b = GraphBuilder(label=node.origin)
                folded = b.reduce(node.op, value, rows, f"{node.name}_of_row")
                rest = tuple(axis for axis in axes if axis not in rows)
                found[node] = b.reduce(node.op, folded, rest, node.name)
        below[node] = frozenset((axes,)) if axes else inner
    return found


@dataclass(frozen=True)
class Term:
    """A product: a number, values of a row, e**(x - max) of the expsum `base`, x - max of the
    expsum `centred`, and values that need no statistic."""

    number: float = 1.0
    rows: tuple[Node, ...] = ()
    base: Node | None = None
    centred: Node | None = None
    free: tuple[Node, ...] = ()

    def times(self, other: Term) -> Term | None:
        """The product; None where it is not linear."""
        found = Term(
            self.number * other.number, self.rows + other.rows, self.base or other.base,
            self.centred or other.centred, self.free + other.free,
        )  # fmt: skip
        twice = (self.base and other.base) or (self.centred and other.centred)
        return None if twice or (found.base and found.centred and found.free) else found


Terms = tuple[Term, ...]


@dataclass(frozen=True)
class _Linear:
    """Reads a value as a sum of terms in the statistics of one depth."""

    axes: tuple[int, ...]
    shape: Shape
    depth: Mapping[Node, int]
    level: int
    """How many reductions lie below what depends on the statistics, themselves included."""
    b: GraphBuilder

    def terms(self, node: Node) -> Terms | None:
        """The terms of `node`; None where it is not linear in what a sweep can gather."""
        if node.kind == "constant":
            value = node.attrs[0]
            real = isinstance(value, int | float) and math.isfinite(value)
            return (Term(number=float(value)),) if real else None  # type: ignore[arg-type]
        if self.depth[node] < self.level:
            return (Term(free=(node,)),)
        if len(node.shape) != len(self.shape):
            return None  # its axes lie in other places
        if self._of_row(node):
            return (Term(rows=(node,)),) if self._is_scale(node) else None
        if node.kind != "pointwise":
            return None
        return self._pointwise(node)

    def _pointwise(self, node: Node) -> Terms | None:
        args = node.args
        if node.op == "sub" and (base := self._statistic(args[1], 0)) and args[0] is base.args[0]:
            return (Term(centred=base),)
        if node.op == "exp":
            return self._exponential(args[0])
        if node.op == "div" and self._statistic(args[1], 1):
            scale = self.b.pointwise("reciprocal", args[1], name="scale")
            return _product(self.terms(args[0]), (Term(rows=(scale,)),))
        if node.op in ("cast", "copy") and node.dtype == args[0].dtype:
            return self.terms(args[0])
        if node.op == "neg":
            return _product(self.terms(args[0]), (Term(-1.0),))
        if node.op not in ("add", "sub", "mul"):
            return None
        left, right = self.terms(args[0]), self.terms(args[1])
        if node.op == "mul":
            return _product(left, right)
        right = _product(right, (Term(-1.0),)) if node.op == "sub" else right
        return None if left is None or right is None else left + right

    def _exponential(self, node: Node) -> Terms | None:
        """e to (x - max), or to (x - max) - log(sum), which is the softmax."""
        terms = self.terms(node) or ()
        centred = [item for item in terms if item == Term(centred=item.centred)]
        if len(centred) != 1 or len(terms) > 2:
            return None
        base = centred[0].centred
        assert base is not None
        scales: tuple[Node, ...] = ()
        for item in terms:
            if item is centred[0]:
                continue
            if len(item.rows) != 1 or item != Term(-1.0, item.rows) or item.rows[0].op != "log":
                return None
            total = item.rows[0].args[0]
            if self._statistic(total, 1) is not base:
                return None
            scales = (self.b.pointwise("reciprocal", total, name="scale"),)
        return (Term(rows=scales, base=base),)

    def _of_row(self, node: Node) -> bool:
        return all(node.shape[axis] == 1 for axis in self.axes)

    def _is_scale(self, node: Node) -> bool:
        """True for what multiplies a softmax or is taken from its logarithm. A mean is not: taken
        from what it is the mean of, both would cancel."""
        return node.op in ("log", "reciprocal") and bool(self._statistic(node.args[0], 1))

    def _statistic(self, node: Node, index: int) -> Node | None:
        """The expsum at hand whose result `index` it is."""
        if node.kind != "field" or node.attrs[0] != index:
            return None
        base = node.args[0]
        usual = base.op == "expsum" and base.attrs == (self.axes,)
        alike = usual and base.args[0].shape == self.shape and self.depth[base] == self.level
        return base if alike else None


def _product(left: Terms | None, right: Terms | None) -> Terms | None:
    """All products of one term of each."""
    if left is None or right is None:
        return None
    found = [one.times(other) for one in left for other in right]
    return None if None in found else tuple(found)  # type: ignore[arg-type]


def _depths(nodes: Iterable[Node]) -> dict[Node, int]:
    """How many reductions and scans lie below each node, itself included."""
    found: dict[Node, int] = {}
    for node in nodes:
        own = int(node.kind in ("reduce", "scan"))
        found[node] = own + max((found[arg] for arg in node.args), default=0)
    return found


def _in_one_sweep(outputs: Sequence[Node]) -> dict[Node, Node]:
    """Sums that are linear in statistics, and these -> what one sweep gathers."""
    nodes = _nodes(outputs)
    depth = _depths(nodes)
    alike: dict[tuple[tuple[int, ...], Shape, torch.dtype, int], dict[Node, Terms]] = {}
    for node in nodes:
        if node.kind == "reduce" and node.op == "sum" and depth[node.args[0]]:
            value, axes = node.args[0], _axes(node)
            b = GraphBuilder(label=node.origin)
            terms = _Linear(axes, value.shape, depth, depth[value], b).terms(value)
            if value.dtype == node.dtype and terms is not None:
                alike.setdefault((axes, value.shape, node.dtype, depth[value]), {})[node] = terms
    found: dict[Node, Node] = {}
    for (axes, shape, _, _), sums in alike.items():
        every = [item for terms in sums.values() for item in terms]
        bases = [base for item in every for base in (item.base, item.centred) if base is not None]
        if bases:
            sweep = _Sweep(axes, shape, list(dict.fromkeys(bases)), GraphBuilder())
            found |= sweep.replaced(sums, nodes)
    return found


class _Group(NamedTuple):
    """Terms with one weight and one scale: `rows` times their weighted sum. Those in `rest`, that
    have no more than the weight and further scales, count by its sum."""

    rows: tuple[Node, ...]
    base: Node | None
    factor: tuple[Node, ...]
    terms: list[Term]
    rest: list[Term]


def _groups(terms: Terms) -> list[_Group]:
    """Groups of the terms that have a weight or a difference from a maximum."""
    found: dict[tuple[object, ...], _Group] = {}
    whole = [item for item in terms if item.base and not item.centred and not item.free]
    for item in terms:
        if item in whole or not (item.base or item.centred):
            continue
        factor = () if item.base else item.free
        group = _Group(item.rows, item.base, factor, [], [])
        found.setdefault((item.rows, item.base, factor), group).terms.append(item)
    for item in whole:
        shared = (one for one in found.values() if one.base is item.base)
        sharing = next((one for one in shared if set(one.rows) <= set(item.rows)), None)
        if sharing is None:
            sharing = found.setdefault(((), item.base, ()), _Group((), item.base, (), [], []))
        sharing.rest.append(item)
    return list(found.values())


class _Sweep:
    """One `expsums` in the making, and the sums that it serves."""

    def __init__(
        self, axes: tuple[int, ...], shape: Shape, bases: list[Node], b: GraphBuilder
    ) -> None:
        self.axes, self.shape, self.bases, self.b = axes, shape, bases, b
        self.args = [base.args[0] for base in bases]
        self.sums: list[WeightedSum] = []

    def replaced(self, sums: Mapping[Node, Terms], nodes: Sequence[Node]) -> dict[Node, Node]:
        """The sums, and the results of the expsums in `nodes` -> what takes their places."""
        groups = {node: _groups(terms) for node, terms in sums.items()}
        places = {node: [self._place(group) for group in groups[node]] for node in sums}
        self.b.label = self.bases[0].origin
        joint = self.b.exp_sums(self.args, self.axes, ExpSums(len(self.bases), tuple(self.sums)))
        found: dict[Node, Node] = {}
        for node in nodes:
            if node.kind == "field" and node.args[0] in self.bases:
                place, index = self.bases.index(node.args[0]), node.attrs[0]
                assert isinstance(index, int)
                found[node] = self.b.field(joint, 2 * place + index, node.name)
        for node, terms in sums.items():
            self.b.label = node.origin
            parts = [self._plain(item) for item in terms if not (item.base or item.centred)]
            parts += [
                self._value(group, at, joint)
                for group, at in zip(groups[node], places[node], strict=True)
            ]
            found[node] = self._total(parts)
        return found

    def _place(self, group: _Group) -> int | None:
        """Which of the weighted sums a group needs."""
        if not group.terms:
            return None
        steps: dict[int, float] = {}
        for item in group.terms:
            if item.centred is not None:
                at = self.bases.index(item.centred)
                steps[at] = steps.get(at, 0.0) + item.number
        values = [self._multiple(item.number, item.free) for item in group.terms if item.free
                  and item.centred is None]  # fmt: skip
        wanted = WeightedSum(
            tuple(steps.items()),
            self._argument(self._total(values)) if values else None,
            None if group.base is None else self.bases.index(group.base),
            self._argument(self._multiple(1.0, group.factor)) if group.factor else None,
        )
        if wanted not in self.sums:
            self.sums.append(wanted)
        return self.sums.index(wanted)

    def _argument(self, node: Node) -> int:
        if node not in self.args[len(self.bases) :]:
            self.args.append(node)
        return self.args.index(node, len(self.bases))

    def _value(self, group: _Group, place: int | None, joint: Node) -> Node:
        """rows * (the weighted sum + the sum of the weight * the rest)."""
        parts: list[Node] = []
        if place is not None:
            parts.append(self.b.field(joint, 2 * len(self.bases) + place, "weighted"))
        if group.rest:
            assert group.base is not None
            rest = self._logarithms(
                [
                    (item.number, tuple(row for row in item.rows if row not in group.rows))
                    for item in group.rest
                ]
            )
            total = self.b.field(joint, 2 * self.bases.index(group.base) + 1, "row_sum")
            parts.append(self.b.pointwise("mul", total, self._total(rest)))
        return self._multiple(1.0, [self._total(parts), *group.rows])

    def _logarithms(self, terms: Sequence[tuple[float, tuple[Node, ...]]]) -> list[Node]:
        """The terms; log(a) - log(b) as log(a / b), which is exact to its own size."""
        left, found = list(terms), []
        while left:
            number, rows = left.pop(0)
            other = next((one for one in left if one[0] == -number and _is_log(one[1])), None)
            if other is not None and _is_log(rows):
                left.remove(other)
                ratio = self.b.pointwise("div", rows[0].args[0], other[1][0].args[0])
                rows = (self.b.pointwise("log", ratio, name="log_ratio"),)
            found.append(self._multiple(number, rows))
        return found

    def _plain(self, term: Term) -> Node:
        """A sum that needs no statistic, scaled."""
        if not term.free:
            count = self.b.size(numel([self.shape[axis] for axis in self.axes]))
            return self._multiple(term.number, [count, *term.rows])
        value = self._multiple(1.0, term.free)
        missing = len(self.shape) - len(value.shape)
        value = self.b.expand(self.b.reshape(value, (ONE,) * missing + value.shape), self.shape)
        total = self.b.reduce("sum", value, self.axes, "row_total")
        return self._multiple(term.number, [total, *term.rows])

    def _multiple(self, number: float, nodes: Sequence[Node]) -> Node:
        first = [] if abs(number) == 1.0 and nodes else [self.b.constant(number)]
        factors = [*first, *nodes]
        product = reduce(lambda left, right: self.b.pointwise("mul", left, right), factors)
        return self.b.pointwise("neg", product) if first == [] and number < 0 else product

    def _total(self, nodes: Sequence[Node]) -> Node:
        return reduce(lambda left, right: self.b.pointwise("add", left, right), nodes)


def _is_log(rows: tuple[Node, ...]) -> bool:
    return len(rows) == 1 and rows[0].op == "log"
