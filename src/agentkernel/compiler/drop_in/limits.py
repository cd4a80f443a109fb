"""For which sizes, and in which mode, does a captured graph stand for the module?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast
from weakref import WeakKeyDictionary

import sympy
import torch
from torch.utils._pytree import tree_flatten

from agentkernel.compiler.ir import Expr
from agentkernel.compiler.sizes import PRINTER
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.problems import LoadedProblem

SAMPLED = 300
"""Sizes from 1 on that are tried where tracing made assumptions."""
SIZE = "a symbolic size"
WHOLE = (0, 2**63 - 1)
"""From where to where `x[:]` slices."""
MAX_SIZES_PER_SYMBOL = 16
"""Sizes a symbol where assumptions tie several symbols."""


@dataclass(frozen=True)
class SizeRange:
    """Which values a free size may take: multiples of `unit` from `least` to `most` (or any)."""

    unit: int = 1
    least: int = 1
    most: int | None = None

    def __contains__(self, size: int) -> bool:
        return (
            size % self.unit == 0
            and size >= self.least
            and (self.most is None or size <= self.most)
        )


@dataclass(frozen=True)
class Limits:
    """`spans`: symbol -> its values; `conditions`: what else must hold among sizes; `eval_only`:
    the module computes something else in training mode."""

    spans: dict[str, SizeRange]
    conditions: tuple[sympy.Basic, ...]
    eval_only: bool


_KNOWN: WeakKeyDictionary[torch.fx.GraphModule, Limits] = WeakKeyDictionary()
_EVAL_ONLY: WeakKeyDictionary[torch.fx.GraphModule, bool] = WeakKeyDictionary()


def adopt_limits(loaded: LoadedProblem, captured: Captured, rewritten: Captured) -> None:
    """Let `rewritten`, made from `captured` by exact rewrites, hold where that holds and its own
    further assumptions do: fresh captures, which `limits_of` compares with, are not rewritten."""
    base = limits_of(loaded, captured)
    spans, conditions = _sizes(rewritten)
    merged = {
        name: replace(span, least=max(span.least, base.spans[name].least))
        if name in base.spans
        else span
        for name, span in spans.items()
    }
    _KNOWN[rewritten.graph] = Limits(merged, conditions, base.eval_only)


def limits_of(loaded: LoadedProblem, captured: Captured) -> Limits:
    """The limits of `captured`: more captures, in training mode and with sizes of 1, tell."""
    if captured.graph not in _KNOWN:
        spans, conditions = _sizes(captured)
        ones = [name for name, span in spans.items() if 1 in span]
        if not _holds_for_one(loaded, captured, spans, ones):
            spans = {
                name: span
                if name not in ones
                or (len(ones) > 1 and _holds_for_one(loaded, captured, spans, (name,)))
                else replace(span, least=max(span.least, 2))
                for name, span in spans.items()
            }
        _KNOWN[captured.graph] = Limits(spans, conditions, eval_only(loaded, captured))
    return _KNOWN[captured.graph]


def assume_limits(captured: Captured, *, eval_only: bool) -> None:
    """Let `captured` hold for all sizes, as long as nobody knows better: that saves two captures
    where the envelope of what is drafted is left out, and a judge tries other sizes anyway."""
    spans = {item.symbol: SizeRange() for item in captured.free_dims}
    _KNOWN.setdefault(captured.graph, Limits(spans, (), eval_only))


def eval_only(loaded: LoadedProblem, captured: Captured) -> bool:
    """Whether training mode computes something else than `captured`, which is the whole module.

    A forward that asks for its mode is traced once more, in training mode.
    """
    if not captured.asks_mode:
        return False
    try:
        other = capture(loaded, training=True)
    except ProblemError:
        return True
    return other.mutated_buffers != captured.mutated_buffers or _code(other) != _code(captured)


def _code(captured: Captured) -> list[str]:
    """Of the graph and of the branches and loops in it."""
    parts = captured.graph.modules()
    return [item.code for item in parts if isinstance(item, torch.fx.GraphModule)]


def eval_only_once(loaded: LoadedProblem, captured: Captured) -> bool:
    """`eval_only` of the whole module behind `captured`, rewritten or not: the two traces that it
    may take are made once a graph, however many files are written from it."""
    graph = captured.graph
    if not captured.asks_mode:
        return False
    if graph in _KNOWN:
        return _KNOWN[graph].eval_only
    if graph not in _EVAL_ONLY:
        _EVAL_ONLY[graph] = eval_only(loaded, capture(loaded))
    return _EVAL_ONLY[graph]


def _sizes(captured: Captured) -> tuple[dict[str, SizeRange], tuple[sympy.Basic, ...]]:
    """What tracing assumed about sizes, as a span a symbol where it can be said so."""
    hints = {item.symbol: item.size for item in captured.free_dims}
    guards = [
        guard
        for guard in dict.fromkeys(captured.guards)
        if {str(item) for item in guard.free_symbols} <= set(hints)
    ]
    tests = {guard: _test(guard, tuple(hints)) for guard in guards}
    spans = {name: SizeRange() for name in hints}
    for name in hints:
        own = [guard for guard in guards if {str(x) for x in guard.free_symbols} == {name}]
        span = _span(hints, name, [tests[guard] for guard in own])
        if span is not None:
            spans[name] = span
            for guard in own:
                tests.pop(guard)
    return spans, tuple(_telling(tests, hints, spans))


Test = Callable[[Mapping[str, int]], bool]


def _test(guard: sympy.Basic, names: Sequence[str]) -> Test:
    symbols = {str(item): item for item in guard.free_symbols}
    given = [symbols.get(name, sympy.Symbol(name)) for name in names]
    call = sympy.lambdify(given, guard, modules="math", printer=PRINTER)

    def holds(sizes: Mapping[str, int]) -> bool:
        try:
            return bool(call(*(sizes[name] for name in names)))
        except ZeroDivisionError:
            return False

    return holds


def _span(hints: Mapping[str, int], name: str, tests: Sequence[Test]) -> SizeRange | None:
    """The span that says the same as `tests` about one symbol; None where none does."""
    if not tests:
        return SizeRange()
    top = max(SAMPLED, 4 * hints[name])
    tried = [*range(1, SAMPLED), *range(SAMPLED, top + 1, max(1, top // SAMPLED)), hints[name]]
    tried += [hints[name] + step for step in (-2, -1, 1, 2)] + [top]
    held = {size: all(test({**hints, name: size}) for test in tests) for size in tried if size > 0}
    found = [size for size, fits in held.items() if fits]
    if not found:
        return None
    most = max(found)
    span = SizeRange(math.gcd(*found), min(found), None if 2 * most > top else most)
    return span if all((size in span) == fits for size, fits in held.items()) else None


def _telling(
    tests: Mapping[sympy.Basic, Test], hints: Mapping[str, int], spans: Mapping[str, SizeRange]
) -> Iterator[sympy.Basic]:
    """Of assumptions among sizes those that rule something out which shorter ones do not."""
    small = [
        [
            *itertools.islice(
                (size for size in range(1, 4096) if size in spans[name]), MAX_SIZES_PER_SYMBOL
            ),
            hint,
        ]
        for name, hint in hints.items()
    ]
    points = [
        dict(zip(hints, values, strict=True))
        for values in itertools.islice(itertools.product(*small), 20000)
    ]
    for guard in sorted(tests, key=lambda item: (item.count_ops(), str(item))):
        left = [point for point in points if tests[guard](point)]
        if len(left) < len(points) or guard.count_ops() <= 2:
            yield guard
        points = left


def _holds_for_one(
    loaded: LoadedProblem, captured: Captured, spans: Mapping[str, SizeRange], names: Sequence[str]
) -> bool:
    """Whether the graph is the same where every size of `names` that may be 1 is 1."""
    hints = {item.symbol: item.size for item in captured.free_dims}
    small = {name: 1 for name in names if 1 in spans[name]}
    sizes = {**hints, **small}
    if sizes == hints:
        return True
    try:
        if not captured.admits(sizes):
            return False
        other = capture(_resized(loaded, captured, sizes))
    except (ProblemError, ZeroDivisionError):  # of an assumption that has no value at these sizes
        return False
    return _same_graph(captured, other, sizes)


def _resized(loaded: LoadedProblem, captured: Captured, sizes: Mapping[str, int]) -> LoadedProblem:
    specs = list(loaded.problem.shape_sets[0].inputs)
    for item in captured.free_dims:
        spec = specs[item.input_index]
        assert isinstance(spec, TensorSpec)
        shape = list(spec.shape)
        shape[item.dim] = sizes[item.symbol]
        specs[item.input_index] = spec.model_copy(update={"shape": tuple(shape)})
    sets = (ShapeSet(inputs=tuple(specs)),)
    return replace(loaded, problem=loaded.problem.model_copy(update={"shape_sets": sets}),
                   live_inputs=())  # fmt: skip


def _same_graph(left: Captured, right: Captured, sizes: Mapping[str, int]) -> bool:
    """The same calls on the same values, with results of the same sizes."""
    ours, theirs = _calls(left), _calls(right)
    if len(ours) != len(theirs):
        return False
    known = {item.symbol: item.size for item in right.free_dims}
    order, others = _places(left, ours), _places(right, theirs)
    return all(
        a.op == b.op
        and (a.op == "placeholder" or a.target == b.target)
        and _shape(a, sizes) == _shape(b, known)
        and _alike(_arguments(a, order), _arguments(b, others))
        for a, b in zip(ours, theirs, strict=True)
    )


def _calls(captured: Captured) -> list[torch.fx.Node]:
    """Nodes other than the arithmetic of sizes, what only checks them, and `x[:]` and `x[:] = y`,
    which tracing leaves out for some sizes."""
    sizes = (torch.SymInt, torch.SymBool, int, type(None))
    return [
        node
        for node in captured.graph.graph.nodes
        if node.op in ("placeholder", "output")
        or not (isinstance(node.meta.get("val"), sizes) or _behind(node) is not None)
    ]


def _behind(node: torch.fx.Node) -> torch.fx.Node | None:
    """The value that a whole slice, or what is put in place of the whole, is another name of."""
    if node.target is torch.ops.aten.slice.Tensor and node.args[2:] == WHOLE:
        return cast("torch.fx.Node", node.args[0])
    if node.target is torch.ops.aten.slice_scatter.default and node.args[3:] == WHOLE:
        return cast("torch.fx.Node", node.args[1])
    return None


def _places(captured: Captured, calls: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, int]:
    """Node -> its place among `calls`; another name of a value has that of the value."""
    found = {node: index for index, node in enumerate(calls)}
    for node in captured.graph.graph.nodes:
        behind = _behind(node)
        if behind is not None and behind in found:
            found[node] = found[behind]
    return found


def _shape(node: torch.fx.Node, sizes: Mapping[str, int]) -> list[object] | None:
    value = node.meta.get("val")
    return (
        [size_at(size, sizes) for size in value.shape] if isinstance(value, torch.Tensor) else None
    )


def size_at(size: object, sizes: Mapping[str, int]) -> object:
    """A captured size at concrete values of its symbols; itself where some are unknown."""
    if not isinstance(size, torch.SymInt):
        return size
    expr: Expr = size.node.expr
    known = {symbol: sizes.get(str(symbol), symbol) for symbol in expr.free_symbols}
    result = expr.subs(known)
    return int(result) if result.is_number else result


def _arguments(node: torch.fx.Node, order: Mapping[torch.fx.Node, int]) -> list[object]:
    """A call's arguments, flat: values by their place in the graph, symbolic sizes as SIZE."""
    leaves, _ = tree_flatten((node.args, tuple(node.kwargs.items())))
    return [
        (SIZE if leaf not in order else ("value", order[leaf]))
        if isinstance(leaf, torch.fx.Node)
        else leaf
        for leaf in leaves
    ]


def _alike(left: Sequence[object], right: Sequence[object]) -> bool:
    """Equal arguments, where a size that was symbolic may be any number."""
    return len(left) == len(right) and all(
        a == SIZE or repr(a) == repr(b) for a, b in zip(left, right, strict=True)
    )
