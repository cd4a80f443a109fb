"""The inputs that a drop-in is verified for, and the lines that refuse all others.

Limits are the sizes and the mode for which a captured graph stands for the module. Also here: the
file's docstring, which names them, and its imports.
"""

from __future__ import annotations

import itertools
import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast
from weakref import WeakKeyDictionary

import sympy
import torch
from torch.utils._pytree import tree_flatten

from agentkernel.compiler.expressions import PRINTER, Symbols, symbols_of
from agentkernel.compiler.ir import Expr
from agentkernel.compiler.lowering.registry import to_expr, whole_sizes
from agentkernel.domain.errors import ProblemError
from agentkernel.domain.problem import ScalarSpec, ShapeSet, TensorSpec
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.problem.module_graph import resized
from agentkernel.version import __version__

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
    the module computes something else in training mode; `zeros`: symbols that may be 0 as well,
    whatever is returned then."""

    spans: dict[str, SizeRange]
    conditions: tuple[sympy.Basic, ...]
    eval_only: bool
    zeros: frozenset[str] = frozenset()


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
    zeros = frozenset(name for name in base.zeros if _ends_in_sums(rewritten, name))
    _KNOWN[rewritten.graph] = Limits(merged, conditions, base.eval_only, zeros)


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
        zeros = frozenset(_zeros(loaded, captured, spans, conditions))
        _KNOWN[captured.graph] = Limits(spans, conditions, eval_only(loaded, captured), zeros)
    return _KNOWN[captured.graph]


def refused_set(loaded: LoadedProblem, captured: Captured) -> str:
    """Which of several declared shape sets a drop-in of `captured` refuses, and what it holds for;
    "" where it takes them all."""
    first, *others = loaded.problem.shape_sets
    if not others:
        return ""
    limits = limits_of(loaded, captured)
    symbols = symbols_of(captured)
    for shapes in (first, *others):
        unmet = next(_unmet_by(shapes, first, captured, limits, symbols), None)
        if unmet is not None:
            return f"{shapes.label}: the graph of {first.label} holds for {unmet} alone"
    return ""


def _unmet_by(
    shapes: ShapeSet, first: ShapeSet, captured: Captured, limits: Limits, symbols: Symbols
) -> Iterator[str]:
    """What `captured`, of the sizes `first`, takes for granted and `shapes` does not have."""
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    given: dict[tuple[int, int], int] = {}
    for index, (spec, known) in enumerate(zip(shapes.inputs, first.inputs, strict=True)):
        if not (isinstance(spec, TensorSpec) and isinstance(known, TensorSpec)):
            yield from () if spec == known else (known.label,)
        elif spec.dtype != known.dtype or len(spec.shape) != len(known.shape):
            yield f"{known.name} {known.dtype} of {len(known.shape)} dimensions"
        else:
            given |= {(index, dim): size for dim, size in enumerate(spec.shape)}
    sizes = {item.symbol: given[item.input_index, item.dim] for item in captured.free_dims[::-1]}
    for (index, dim), actual in given.items():
        name = captured.user_inputs[index]
        size = values[name].shape[dim]
        if size_at(size, sizes) != actual:
            yield f"{name}.shape[{dim}] == {symbols.wrapper(to_expr(size))}"
    empty = [*_empty(captured, limits, symbols), *limits.zeros]
    for symbol, span in limits.spans.items():
        if sizes[symbol] not in span and (sizes[symbol] or symbol not in empty):
            yield _span_text(symbol, span, symbols, empty)
    for condition in limits.conditions:
        if not size_test(condition, tuple(sizes))(sizes):
            yield _condition(condition, symbols)


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
        for guard in dict.fromkeys(map(whole_sizes, captured.guards))
        if {str(item) for item in guard.free_symbols} <= set(hints)
    ]
    tests = {guard: size_test(guard, tuple(hints)) for guard in guards}
    spans = {name: SizeRange() for name in hints}
    for name in hints:
        own = [guard for guard in guards if {str(x) for x in guard.free_symbols} == {name}]
        span = _span(hints, name, [tests[guard] for guard in own])
        if span is not None:
            spans[name] = span
            for guard in own:
                tests.pop(guard)
    return spans, tuple(_telling(tests, hints, spans))


SizeTest = Callable[[Mapping[str, int]], bool]


def size_test(guard: sympy.Basic, names: Sequence[str]) -> SizeTest:
    """Whether `guard` holds for the values of these names."""
    symbols = {str(item): item for item in guard.free_symbols}
    given = [symbols.get(name, sympy.Symbol(name)) for name in names]
    call = sympy.lambdify(given, guard, modules=[{"math": math}, "math"], printer=PRINTER)

    def holds(sizes: Mapping[str, int]) -> bool:
        try:
            return bool(call(*(sizes[name] for name in names)))
        except ZeroDivisionError:
            return False

    return holds


def _span(hints: Mapping[str, int], name: str, tests: Sequence[SizeTest]) -> SizeRange | None:
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
    tests: Mapping[sympy.Basic, SizeTest], hints: Mapping[str, int], spans: Mapping[str, SizeRange]
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
        asked = resized(loaded, captured, sizes)
        # Numbers are traced sooner; what torch simplifies for them alone is looked at once more.
        return any(
            _same_graph(captured, capture(asked, symbolic=symbolic), sizes)
            for symbolic in (False, True)
        )
    except (ProblemError, ZeroDivisionError):  # of an assumption that has no value at these sizes
        return False


INDICES = (torch.int32, torch.int64)
SUMMED = frozenset(
    ("sum.default", "sum.dim_IntList", "mean.dim", "index_add.default", "index_put.default",
     "scatter_add.default", "sym_size.int")
)  # fmt: skip
"""What is right of no elements at all: a sum of none is 0."""


def _zeros(
    loaded: LoadedProblem, captured: Captured, spans: Mapping[str, SizeRange],
    conditions: Sequence[sympy.Basic],
) -> Iterator[str]:  # fmt: skip
    """Free sizes of index tensors, and of nothing else that goes in, that may be 0: the graph is
    the same, and what has no elements then ends in sums."""
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    kinds: dict[str, set[torch.dtype]] = {name: set() for name in spans}
    for item in captured.free_dims:
        kinds[item.symbol].add(values[captured.user_inputs[item.input_index]].dtype)
    tied = {str(symbol) for condition in conditions for symbol in condition.free_symbols}
    for name, span in spans.items():
        indices = kinds[name] <= set(INDICES) and span == SizeRange() and name not in tied
        if indices and _ends_in_sums(captured, name) and _holds_for_none(loaded, captured, name):
            yield name


def _ends_in_sums(captured: Captured, name: str) -> bool:
    """Whether all that is computed of values with this size has it too, but for sums over them."""
    return all(
        name in _free(node) or str(node.target).removeprefix("aten.") in SUMMED
        for node in captured.graph.graph.nodes
        if node.op == "call_function" and any(name in _free(x) for x in node.all_input_nodes)
    )


def _free(node: torch.fx.Node) -> set[str]:
    """The symbols in the sizes of a tensor, or of several; those of a size."""
    values = tree_flatten(node.meta.get("val"))[0]
    sizes: list[object] = [x for x in values if isinstance(x, torch.SymInt)]
    sizes += [size for x in values if isinstance(x, torch.Tensor) for size in x.shape]
    return {str(symbol) for size in sizes for symbol in to_expr(size).free_symbols}


def _holds_for_none(loaded: LoadedProblem, captured: Captured, name: str) -> bool:
    """Whether the graph is the same where this size is 0."""
    sizes = {item.symbol: item.size for item in captured.free_dims} | {name: 0}
    try:
        other = capture(resized(loaded, captured, sizes))
    except (ProblemError, ZeroDivisionError):
        return False
    return _same_graph(captured, other, sizes)


def _same_graph(left: Captured, right: Captured, sizes: Mapping[str, int]) -> bool:
    """The same calls on the same values, with results of the same sizes."""
    ours, theirs = _calls(left), _calls(right)
    if len(ours) != len(theirs):
        return False
    known = {item.symbol: item.size for item in right.free_dims}
    order, others = _places(left, ours), _places(right, theirs)
    return all(
        a.op == b.op
        and (a.op == "placeholder" or _operator(a) == _operator(b))
        and _shape(a, sizes) == _shape(b, known)
        and _alike(_arguments(a, order), _arguments(b, others))
        for a, b in zip(ours, theirs, strict=True)
    )


def _calls(captured: Captured) -> list[torch.fx.Node]:
    """Nodes other than the arithmetic of sizes, what only checks them, and `x[:]`, `x[:] = y` and
    the copy in a reshape, which tracing leaves out for some sizes."""
    sizes = (torch.SymInt, torch.SymBool, int, type(None))
    return [
        node
        for node in captured.graph.graph.nodes
        if node.op in ("placeholder", "output")
        or not (isinstance(node.meta.get("val"), sizes) or _behind(node) is not None)
    ]


def _behind(node: torch.fx.Node) -> torch.fx.Node | None:
    """The value that a whole slice, what is put in place of the whole, or a copy that a reshape
    makes for itself is another name of."""
    if _copies_for_a_view(node):
        return cast("torch.fx.Node", node.args[0])
    if node.target is torch.ops.aten.slice.Tensor and node.args[2:] == WHOLE:
        return cast("torch.fx.Node", node.args[0])
    if node.target is torch.ops.aten.slice_scatter.default and node.args[3:] == WHOLE:
        return cast("torch.fx.Node", node.args[1])
    return None


def _operator(node: torch.fx.Node) -> object:
    """What a node calls; a reshape is the same call whether it had to copy or not."""
    unsafe = node.target is torch.ops.aten._unsafe_view.default
    return torch.ops.aten.view.default if unsafe else node.target


def _copies_for_a_view(node: torch.fx.Node) -> bool:
    """Whether it is the copy of a reshape whose result nobody outside gets to see, or writes to:
    then it is no matter that there is none where the sizes allow a view."""
    return (
        node.target is torch.ops.aten.clone.default
        and node.kwargs.get("memory_format") is torch.contiguous_format
        and all(user.target is torch.ops.aten._unsafe_view.default for user in node.users)
        and not any(_is_shared(user) for user in node.users)
    )


def _is_shared(node: torch.fx.Node) -> bool:
    """Whether a value is returned or written to, or a view of it is."""
    for user in node.users:
        if not isinstance(user.target, torch._ops.OpOverload):
            return True
        schema = user.target._schema
        if schema.is_mutable:
            return True
        if any(item.alias_info is not None for item in schema.returns) and _is_shared(user):
            return True
    return False


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
    """A call's arguments, flat: values by their place in the graph, symbolic sizes as SIZE. The
    shape that a view is asked for is that of its result, whether it says -1 or not."""
    told = node.args[:1] if _operator(node) is torch.ops.aten.view.default else node.args
    leaves, _ = tree_flatten((told, tuple(node.kwargs.items())))
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


@dataclass(frozen=True)
class Envelope:
    """The inputs that a drop-in takes, for people and as Python.

    `text`: `x float32[free, 8192], s=3.0`; `notes`: `x_dim1 % 2 == 0`. `arguments` go first in
    forward, `sizes` once the free sizes have their names, `empty` is true of inputs without
    elements that give outputs without elements.
    """

    text: str
    notes: tuple[str, ...]
    arguments: tuple[str, ...]
    sizes: tuple[str, ...]
    empty: str
    eval_only: bool


def envelope(
    loaded: LoadedProblem,
    captured: Captured,
    limits: Limits,
    symbols: Symbols,
    names: Mapping[str, str],
    constant: str,
) -> Envelope:
    """What `captured` took for granted about the inputs; `names`: placeholder -> argument.

    `constant` is the name that the file gives to the text that ends every refusal.
    """
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    specs = loaded.problem.shape_sets[0].inputs
    texts: list[str] = []
    lines: list[str] = []
    late: list[str] = []
    read: set[str] = set()
    for index, placeholder in enumerate(captured.user_inputs):
        name, value, spec = names[placeholder], values[placeholder], specs[index]
        if isinstance(value, torch.Tensor):
            sizes = _Sizes(name, value, symbols, read)
            texts.append(sizes.text)
            given = f"{{{name}.dtype}}{{list({name}.shape)}}"
            lines += refusal(sizes.early, f"{name} is {given}", constant)
            late += sizes.late
        elif isinstance(spec, ScalarSpec):
            known = read_literal(spec.literal)
            texts.append(f"{name}={known!r}")
            given = "given" if known is None else f"{{{name}}}"  # a tensor would be shown whole
            lines += refusal([differs(name, known)], f"{name} is {given}", constant)
    if limits.eval_only:
        stop = "training mode computes something else than this drop-in: call eval() first"
        lines[:0] = ["if self.training:", "    raise ValueError(", f'        "{stop}"', "    )"]
    empty = _empty(captured, limits, symbols)
    taken = [*empty, *limits.zeros]
    notes = tuple(_notes(limits, symbols, taken))
    unmet = [*late, *_unmet(limits, symbols, taken)]
    told = ", ".join(f"{{{name}=}}" for name in _size_names(symbols))
    return Envelope(
        text=", ".join(texts) or "no inputs",
        notes=notes,
        arguments=tuple(lines),
        sizes=tuple(refusal(unmet, f"sizes are {told}", constant)),
        empty=" or ".join(f"{symbols.name(sympy.Symbol(item))} == 0" for item in empty),
        eval_only=limits.eval_only,
    )


class _Sizes:
    """One tensor's description and what its dtype, rank and sizes must not be."""

    def __init__(self, name: str, value: torch.Tensor, symbols: Symbols, read: set[str]) -> None:
        self.early = [f"{name}.dtype != {value.dtype}", f"{name}.ndim != {value.ndim}"]
        self.late: list[str] = []
        shown: list[str] = []
        for dim, size in enumerate(value.shape):
            expr, here = to_expr(size), f"{name}.shape[{dim}]"
            needed = {str(symbol) for symbol in expr.free_symbols}
            if expr.is_symbol and symbols.readings.get(str(expr)) == here:
                read.add(str(expr))
                shown.append("free")
                continue
            unknown = needed - set(symbols.readings)
            code = str(symbols.hint(expr)) if unknown else symbols.wrapper(expr)
            shown.append(code)
            if expr.is_symbol and needed <= read:
                self.early.append(f"{here} != {symbols.readings[str(expr)]}")
            else:
                (self.late if needed else self.early).append(f"{here} != {code}")
        dtype = str(value.dtype).removeprefix("torch.")
        self.text = f"{name} {dtype}[{', '.join(shown)}]"


def refusal(unmet: Sequence[str], given: str, constant: str) -> list[str]:
    """`if ...: raise ValueError(...)`, over several lines where it is long."""
    if not unmet:
        return []
    condition = " or ".join(unmet)
    head = [f"if {condition}:"]
    if len(condition) > 84:
        head = ["if (", *(f"    {'or ' if i else ''}{part}" for i, part in enumerate(unmet)), "):"]
    text = f'f"{given}; {{{constant}}}"'
    if len(text) <= 68:
        return [*head, f"    raise ValueError({text})"]
    texts = [text] if len(text) <= 84 else [f'f"{given}; "', f'f"{{{constant}}}"']
    return [*head, "    raise ValueError(", *(f"        {item}" for item in texts), "    )"]


def differs(name: str, value: object) -> str:
    """The condition under which a scalar is another than `value`."""
    if value is None or isinstance(value, bool):
        return f"{name} is not {value}"
    if isinstance(value, float) and math.isnan(value):
        return f"{name} == {name}"
    return f"{name} != {value!r}"


def _size_names(symbols: Symbols) -> list[str]:
    return [symbols.name(sympy.Symbol(item)) for item in symbols.readings]


def _empty(captured: Captured, limits: Limits, symbols: Symbols) -> list[str]:
    """Symbols that leave every output without elements where they are 0."""
    if captured.written:  # what forward writes to may have elements where its outputs have none
        return []
    values = {node.name: node.meta.get("val") for node in captured.graph.graph.nodes}
    shapes = [
        {str(to_expr(size)) for size in value.shape}
        for value in (values.get(name) for name in captured.outputs if name is not None)
        if isinstance(value, torch.Tensor)
    ]
    return [
        name
        for name in symbols.readings
        if all(name in shape for shape in shapes) and limits.spans[name].least == 1
    ]


def _unmet(limits: Limits, symbols: Symbols, empty: Sequence[str]) -> Iterator[str]:
    for symbol in symbols.readings:
        span, name = limits.spans[symbol], symbols.name(sympy.Symbol(symbol))
        if span.unit > 1:
            yield f"{name} % {span.unit} != 0"
        least = 0 if symbol in empty else span.least
        if least > 0:
            yield f"{name} < {least}"
        if span.most is not None:
            yield f"{name} > {span.most}"
    for condition in limits.conditions:
        yield f"not ({_condition(condition, symbols)})"


def _notes(limits: Limits, symbols: Symbols, empty: Sequence[str]) -> Iterator[str]:
    """What holds among sizes, for people; a size may be 0 where nothing else is said."""
    for symbol in symbols.readings:
        if limits.spans[symbol] != SizeRange() or symbol not in empty:
            yield _span_text(symbol, limits.spans[symbol], symbols, empty)
    for condition in limits.conditions:
        yield _condition(condition, symbols)


def _span_text(symbol: str, span: SizeRange, symbols: Symbols, empty: Sequence[str]) -> str:
    """`x_dim0 a multiple of 2, x_dim0 >= 4`."""
    name = symbols.name(sympy.Symbol(symbol))
    parts = [f"{name} a multiple of {span.unit}"] if span.unit > 1 else []
    parts += [f"{name} >= {span.least}"] if span.least > 1 or symbol not in empty else []
    parts += [f"{name} <= {span.most}"] if span.most is not None else []
    return ", ".join(parts)


def _condition(condition: sympy.Basic, symbols: Symbols) -> str:
    named = condition.subs({
        symbol: sympy.Symbol(symbols.name(symbol), positive=True, integer=True)
        for symbol in condition.free_symbols
    })  # fmt: skip
    return str(PRINTER.doprint(named))


DOCSTRING_WIDTH = 99
OWN_IMPORTS = ("import torch", "import triton", "import triton.language as tl")


def module_docstring(
    loaded: LoadedProblem, checked: Envelope, gradients: str, copies: Sequence[str] = ()
) -> str:
    """What the file replaces, what it does about `gradients`, the inputs that it is written for,
    and of which classes that it returns it has `copies`."""
    problem = loaded.problem
    where = f" of {Path(problem.path).name}" if problem.path else ""
    mode = "Eval mode only: training mode computes something else. " if checked.eval_only else ""
    free = "; a free size may change from call to call" if "free" in checked.text else ""
    inputs = f"Inputs: {'; '.join([f'{checked.text}{free}', *checked.notes])}."
    lines = [
        f'"""Drop-in for `{problem.class_name}`{where}, generated by agentkernel {__version__}.',
        "",
        *textwrap.wrap(f"{mode}{gradients}", DOCSTRING_WIDTH),
        *textwrap.wrap(inputs, DOCSTRING_WIDTH, subsequent_indent="    "),
        *(f"Returns a `{name}`: the class here is a copy of the original's." for name in copies),
        '"""',
    ]
    return "\n".join(lines)


def verified_text(name: str, checked: Envelope) -> str:
    """The constant that ends every refusal."""
    whole = "; ".join([f"this drop-in was verified for {checked.text}", *checked.notes])
    parts = textwrap.wrap(f"{whole}; use the original module for others", DOCSTRING_WIDTH - 10)
    quoted = [f"{part} " for part in parts[:-1]] + parts[-1:]
    return "\n".join([f"{name} = (", *(f"    {quoted_text(part)}" for part in quoted), ")"])


def quoted_text(text: str) -> str:
    """A string's literal in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def import_block(needed: Sequence[str]) -> str:
    """The imports sorted as ruff sorts them: future, standard library, others."""
    lines = list(dict.fromkeys([*needed, *OWN_IMPORTS]))
    future = [line for line in lines if line.startswith("from __future__")]
    rest = [line for line in lines if line not in future]
    standard = [line for line in rest if line.split()[1].split(".")[0] in sys.stdlib_module_names]
    others = [line for line in rest if line not in standard]
    return "\n\n".join("\n".join(_sorted(group)) for group in (future, standard, others) if group)


def _sorted(lines: Sequence[str]) -> list[str]:
    """`import x` before `from x import y`, each by name."""
    return sorted(lines, key=lambda line: (line.startswith("from"), line.split()[1]))
