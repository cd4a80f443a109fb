"""Segments of a partition as problems of their own: what they read comes in, what they store goes
out, and the operators of the captured graph stand between."""

from __future__ import annotations

import operator
import textwrap
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import cast, get_args

import sympy
import torch
from torch import fx

from agentkernel.compiler.attention import AttentionStep
from agentkernel.compiler.axes import contiguous_strides
from agentkernel.compiler.emit import Names
from agentkernel.compiler.expressions import Symbols
from agentkernel.compiler.fusion import Step
from agentkernel.compiler.ir import Node, Shape, UnsupportedOp, same
from agentkernel.compiler.lowering.registry import shape_of
from agentkernel.compiler.pipeline import Compiled
from agentkernel.compiler.providers.library import ArgumentTexts
from agentkernel.compiler.segments import stored_by
from agentkernel.domain.problem import DType, Problem, ShapeSet, TensorSpec

HEAD = '''\
import torch
from torch import nn


class Model(nn.Module):
    """One part of a larger module. It has no weights and no state: all that it reads is given."""

    def forward(self, {arguments}):
        # All that comes in and goes out lies contiguously. Results: {results}
{body}
'''


@dataclass(frozen=True, eq=False)
class CutSegment:
    """Steps that run one after the other, with the values that go in and out as the captured graph
    has them."""

    steps: tuple[Step, ...]
    reads: Mapping[Node, Shape]
    stores: Mapping[Node, Shape]
    """Stored values -> their shapes in the graph, which may be written otherwise than they lie."""
    turned: frozenset[Node]
    """Of `stores`, those that lie, and are returned, with their dimensions 1 and 2 exchanged."""
    problem: Problem
    """At the usual sizes; equal segments have equal problems."""

    @property
    def key(self) -> str:
        """Equal for segments that compute the same at the same sizes."""
        return self.problem.sha256


def cut_segments(compiled: Compiled) -> tuple[CutSegment, ...]:
    """The segments that can stand alone. A step whose result the graph does not have, as a product
    without its bias, is one with those behind it. Left out is what has no such problem: random
    numbers, indices, sizes that no input has, results in other layouts."""
    steps, calls = compiled.partition.steps, calls_of(compiled)
    last = {node: at for at, step in enumerate(steps) for node in step.reads}
    last |= {output.node: len(steps) for output in compiled.partition.outputs}
    found: list[CutSegment] = []
    group: list[Step] = []
    for at, step in enumerate(steps):
        group.append(step)
        stored = [node for item in group for node in stored_by(item)]
        stores = tuple(node for node in stored if last.get(node, -1) > at)
        if not all(node in calls and _lies_plain(compiled, node) for node in stores):
            continue
        cut = _cut(compiled, tuple(group), stores, calls)
        found += [] if cut is None or len(group) == len(steps) else [cut]
        group = []
    return tuple(found)


def calls_of(compiled: Compiled) -> dict[Node, fx.Node]:
    """Stored values -> the nodes of the captured graph with the same elements, as far as there are
    such."""
    named = {node.name: node for node in compiled.captured.graph.graph.nodes}
    returned = {item.node: named[item.name] for item in compiled.partition.outputs}
    return {**returned, **compiled.graph.calls}


def _lies_plain(compiled: Compiled, node: Node) -> bool:
    """Whether what forward returns of it lies contiguously."""
    given = [item.strides for item in compiled.partition.outputs if item.node is node]
    return all(all(map(same, item, contiguous_strides(node.shape))) for item in given)


def _cut(
    compiled: Compiled, steps: tuple[Step, ...], stores: tuple[Node, ...],
    calls: Mapping[Node, fx.Node],
) -> CutSegment | None:  # fmt: skip
    own = {node for step in steps for node in stored_by(step)}
    reads = tuple(dict.fromkeys(node for step in steps for node in step.reads if node not in own))
    if not reads or not stores or any(node not in calls for node in reads):
        return None
    floats = (item.dtype.is_floating_point or item.dtype == torch.bool for item in reads)
    if not all(floats) or any(_dtype(item) not in get_args(DType) for item in (*reads, *stores)):
        return None
    inside = [item for item in steps if isinstance(item, AttentionStep) and item.heads_inside]
    turned = frozenset(item.node for item in inside if item.node in stores)
    ends = [calls[x] for x in reads], [calls[x] for x in stores], {calls[x] for x in turned}
    try:
        problem = _problem(compiled, *ends)
    except (UnsupportedOp, KeyError):  # a size that no input has is no key
        return None
    shapes = {node: shape_of(calls[node].meta["val"]) for node in (*reads, *stores)}
    given, made = ({node: shapes[node] for node in nodes} for nodes in (reads, stores))
    return CutSegment(steps, given, made, turned, problem)


def _dtype(node: Node) -> str:
    return str(node.dtype).removeprefix("torch.")


def _problem(
    compiled: Compiled, reads: Sequence[fx.Node], stores: Sequence[fx.Node], turned: Set[fx.Node]
) -> Problem:
    """Raises UnsupportedOp for what lies between them and has no text, KeyError for a size that no
    input has."""
    between, names = _between(reads, stores), Names({"self", "torch", "nn"})
    tensors = {
        node: names.unique(_wanted(compiled, node, given=node in reads))
        for node in (*reads, *between)
    }
    symbols = _symbols(compiled, {tensors[node]: node for node in reads})
    texts = ArgumentTexts(tensors, symbols, f"{tensors[reads[0]]}.device")
    body = [f"{tensors[node]} = {_call(node, texts)}" for node in between]
    lying = {node: ".transpose(1, 2)" if node in turned else "" for node in stores}
    made = [f"{tensors[node]}{view}.contiguous()" for node, view in lying.items()]
    body.append(f"return {', '.join(made)}")
    for symbol, reading in symbols.readings.items():
        name = symbols.name(sympy.Symbol(symbol))
        body[:0] = [f"{name} = {reading}"] if any(name in line for line in body) else []
    results = (_spec(compiled, tensors[x], x, turned=x in turned).label for x in stores)
    source = HEAD.format(
        arguments=", ".join(tensors[node] for node in reads), results=", ".join(results),
        body=textwrap.indent("\n".join(body), " " * 8),
    )  # fmt: skip
    inputs = tuple(_spec(compiled, tensors[node], node) for node in reads)
    return Problem(
        name="segment", origin="class", path="", source=source, class_name="Model",
        shape_sets=(ShapeSet(inputs=inputs),),
    )  # fmt: skip


def _spec(compiled: Compiled, name: str, node: fx.Node, *, turned: bool = False) -> TensorSpec:
    value = node.meta["val"].transpose(1, 2) if turned else node.meta["val"]
    dtype = cast("DType", str(value.dtype).removeprefix("torch."))
    shape = tuple(map(compiled.symbols.hint, shape_of(value)))
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def _between(reads: Sequence[fx.Node], stores: Sequence[fx.Node]) -> list[fx.Node]:
    """The calls that lead from the one to the other, in order. Raises UnsupportedOp."""
    waiting, needed = list(stores), set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node in needed or node in reads or _is_size(node):
            continue
        target = str(node.target)
        known = node.target is operator.getitem or target.startswith("aten.")
        if node.op != "call_function" or not known or _is_random(node):
            raise UnsupportedOp(target, "it cannot stand alone")
        needed.add(node)
        waiting += node.all_input_nodes
    return [node for node in stores[0].graph.nodes if node in needed]


def _is_random(node: fx.Node) -> bool:
    """True for what draws numbers; attention without dropout does not."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    names = [item.name for item in node.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return "dropout_p" not in names or given.get("dropout_p", 0.0) != 0.0


def _is_size(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float)


def _wanted(compiled: Compiled, node: fx.Node, *, given: bool) -> str:
    """The last word of a weight's path, the operator of a value: equal layers have equal names."""
    path = compiled.captured.parameters.get(node.name) or compiled.captured.constants.get(node.name)
    if path is not None:
        return path.rpartition(".")[2]
    if given:
        return "x"
    return "part" if node.target is operator.getitem else str(node.target).split(".")[1]


def _call(node: fx.Node, texts: ArgumentTexts) -> str:
    if node.target is operator.getitem:
        return f"{texts.text(node.args[0])}[{node.args[1]}]"
    given = [texts.text(item) for item in node.args]
    given += [f"{key}={texts.text(item)}" for key, item in node.kwargs.items()]
    return f"torch.ops.{node.target}({', '.join(given)})"


def _symbols(compiled: Compiled, reads: Mapping[str, fx.Node]) -> Symbols:
    """Free sizes as they are read from what comes in."""
    readings: dict[str, str] = {}
    for name, node in reads.items():
        for dim, size in enumerate(shape_of(node.meta["val"])):
            if size.is_Symbol:
                readings.setdefault(str(size), f"{name}.shape[{dim}]")
    return Symbols(readings, compiled.symbols.values)
