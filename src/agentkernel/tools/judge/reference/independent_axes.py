"""Axes along which a captured graph falls into slices that know nothing of each other.

A dataflow analysis: the axis starts as a dimension of some inputs, and a rule for each operator of
ATen (`axis_rules`) says in which dimension of its result the axis lies, or how what the slices give
for a reduction over it is combined. An operator without a rule ends the proof.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch.fx import Node

from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.judge.memory_count import NOT_COUNTED, bytes_of, graph_values
from agentkernel.tools.judge.reference.axis_rules import (
    Axis,
    Call,
    Known,
    NoProof,
    Partial,
    State,
    rule_of,
)
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.op_cost import op_name

FEW = 16
"""Slices that fewer units make may be too large each."""


@dataclass(frozen=True)
class Slicing:
    """The proof for one axis of `extent` units.

    `axes` has every node that carries it, `partial` the reductions over it, `cuts` the dimension
    along which a whole operand is cut where a node meets it with slices; `levels` says how many
    reductions over the axis a node must wait for; `whole_bytes` is what is held uncut, in fp64.
    """

    extent: int
    axes: Mapping[str, State]
    partial: Mapping[str, Partial]
    cuts: Mapping[tuple[str, str], Axis]
    levels: Mapping[str, int]
    values: Mapping[str, object]
    """Every node at full size: tensors without storage, numbers."""
    outputs: tuple[Axis | None, ...]
    whole_bytes: int

    @property
    def passes(self) -> int:
        """How often the slices are gone through."""
        return 1 + max((self.levels[name] for name in self.partial), default=0)


def find_slicing(captured: Captured, inputs: ShapeSet) -> Slicing | str:
    """The best axis of `captured` at these sizes: the least is held whole, in the fewest passes,
    with the most slices. A sentence where nothing proves any."""
    reasons: list[str] = []
    found = list(all_slicings(captured, inputs, reasons))
    if found:
        return min(found, key=_cost)
    return reasons[0] if reasons else "no input has a dimension of more than one element"


def all_slicings(
    captured: Captured, inputs: ShapeSet, reasons: list[str] | None = None
) -> Iterator[Slicing]:
    """Every axis that is proven; `reasons` gets why others are not."""
    reasons = [] if reasons is None else reasons
    if captured.mutated_inputs or captured.mutated_buffers:
        reasons.append("forward writes to its inputs or buffers")
        return
    try:
        values = graph_values(captured, inputs)
    except NOT_COUNTED as error:
        kind = type(error).__name__
        reasons.append(f"the graph does not run on tensors without storage ({kind})")
        return
    for seeds in _seeds(captured, inputs):
        try:
            yield _Proof(captured, values, seeds).slicing()
        except NoProof as error:
            reasons.append(str(error))


def _cost(item: Slicing) -> tuple[int, bool, int, int]:
    """Few and whole slices of memory that lies together come first."""
    first = next((axis for axis in item.axes.values() if isinstance(axis, Axis)), Axis(0))
    return (item.whole_bytes * item.passes, item.extent < FEW, first.dim, -item.extent)


def _seeds(captured: Captured, inputs: ShapeSet) -> Iterator[dict[str, int]]:
    """Dimensions of inputs to start from: those with one symbol together, those of one size and
    place together, then each by itself."""
    specs = dict(zip(captured.user_inputs, inputs.inputs, strict=True))
    tensors = {n: s.shape for n, s in specs.items() if isinstance(s, TensorSpec)}
    groups: list[dict[str, int]] = []
    symbols: dict[str, dict[str, int]] = defaultdict(dict)
    for item in captured.free_dims:
        symbols[item.symbol].setdefault(captured.user_inputs[item.input_index], item.dim)
    groups += list(symbols.values())
    largest = max(tensors.items(), key=lambda item: math.prod(item[1]), default=("", ()))
    for dim, size in enumerate(largest[1]):
        alike = {n: dim for n, shape in tensors.items() if len(shape) > dim and shape[dim] == size}
        groups.append(alike)
    groups += [{name: dim} for name, shape in tensors.items() for dim in range(len(shape))]
    seen: list[dict[str, int]] = []
    for group in groups:
        sizes = {tensors[name][dim] for name, dim in group.items() if name in tensors}
        if len(sizes) == 1 and sizes != {1} and sizes != {0} and group not in seen:
            seen.append(group)
            yield group


class _Proof(Known):
    """The states of all nodes, for one set of dimensions to start from."""

    def __init__(
        self, captured: Captured, values: Mapping[str, object], seeds: Mapping[str, int]
    ) -> None:
        name, dim = next(iter(seeds.items()))
        extent = int(cast("torch.Tensor", values[name]).shape[dim])
        super().__init__(values, {name: Axis(dim) for name, dim in seeds.items()}, extent)
        self.captured = captured
        self.levels: dict[str, int] = {}

    def slicing(self) -> Slicing:
        """Go through the graph. Raises NoProof."""
        for node in self.captured.graph.graph.nodes:
            if node.op in ("call_function", "get_attr"):
                self._visit(node)
            elif node.op == "placeholder":
                self.levels[node.name] = 0
        outputs = tuple(
            None if name is None else cast("Axis | None", self.states.get(name))
            for name in self.captured.outputs
        )
        if not self.partial and all(axis is None for axis in outputs):
            raise NoProof("no output depends on it")
        carried = {name: state for name, state in self.states.items() if state is not None}
        return Slicing(
            self.extent, carried, self.partial, self.cuts, self.levels, self.values, outputs,
            self._whole_bytes(),
        )  # fmt: skip

    def _whole_bytes(self) -> int:
        """What is held uncut: tensors that are no views, twice as wide."""
        nodes = self.captured.graph.graph.nodes
        names = [n.name for n in nodes if n.op != "output" and self.states.get(n.name) is None]
        views = {n.name for n in nodes if getattr(n.target, "is_view", False)}
        return 2 * bytes_of([self.values[name] for name in names if name not in views])

    def _visit(self, node: Node) -> None:
        inputs = node.all_input_nodes
        self.levels[node.name] = max((self.levels[item.name] for item in inputs), default=0)
        carriers = [item for item in inputs if self.states.get(item.name) is not None]
        if node.target is operator.getitem:
            self.states[node.name] = _picked(self.states.get(inputs[0].name), node.args[1])
            return
        if not carriers or op_name(node.target).startswith("aten.sym_"):
            return
        name = op_name(node.target).removeprefix("aten.")
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            raise NoProof(f"{node.target} has no rule")
        names = [item.name for item in schema.arguments]
        given = {item.name: item.default_value for item in schema.arguments}
        given |= dict(zip(names, node.args, strict=False)) | node.kwargs
        call = Call(self, node, name, given, carriers)
        self.states[node.name] = rule_of(node)(call)
        if node.name in self.partial:
            self.levels[node.name] += 1


def _picked(state: State, place: object) -> State:
    return state[int(cast("int", place))] if isinstance(state, tuple) else state
