"""Which lines of a drop-in refuse inputs that it was not verified for?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sympy
import torch

from agentkernel.compiler.drop_in.limits import Limits, SizeRange
from agentkernel.compiler.lowering.registry import to_expr
from agentkernel.compiler.sizes import PRINTER, Symbols
from agentkernel.domain.problem import ScalarSpec
from agentkernel.storage.source_text import read_literal
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.problem.problems import LoadedProblem


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
            lines += refusal([differs(name, known)], f"{name} is {{{name}}}", constant)
    if limits.eval_only:
        stop = "training mode computes something else than this drop-in: call eval() first"
        lines[:0] = ["if self.training:", "    raise ValueError(", f'        "{stop}"', "    )"]
    notes = tuple(_notes(limits, symbols))
    empty = _empty(captured, limits, symbols)
    unmet = [*late, *_unmet(limits, symbols, empty)]
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
    return [*head, "    raise ValueError(", f"        {text}", "    )"]


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


def _notes(limits: Limits, symbols: Symbols) -> Iterator[str]:
    """What holds among sizes, for people."""
    for symbol in symbols.readings:
        span, name = limits.spans[symbol], symbols.name(sympy.Symbol(symbol))
        if span != SizeRange():
            parts = [f"{name} a multiple of {span.unit}"] if span.unit > 1 else []
            parts += [f"{name} >= {span.least}"] if span.least > 1 else []
            parts += [f"{name} <= {span.most}"] if span.most is not None else []
            yield ", ".join(parts)
    for condition in limits.conditions:
        yield _condition(condition, symbols)


def _condition(condition: sympy.Basic, symbols: Symbols) -> str:
    named = condition.subs({
        symbol: sympy.Symbol(symbols.name(symbol), positive=True, integer=True)
        for symbol in condition.free_symbols
    })  # fmt: skip
    return str(PRINTER.doprint(named))
