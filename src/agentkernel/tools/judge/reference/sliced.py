"""The reference in fp64, slice by slice along an axis that its graph proves independent.

The proof is a dataflow analysis: the axis starts as a dimension of some inputs, and a rule for
each ATen operator (`axis_rules`) says in which dimension of its result the axis lies, or how the
results of the slices are combined for a reduction over it. An operator without a rule ends the
proof.

Each slice is computed from the slices of the inputs that carry the axis, and from what is held
whole: weights, other inputs, and the reductions over the axis, which are gathered from all
slices before.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch.fx import Node
from torch.utils._pytree import tree_map

from agentkernel.domain.problem import ShapeSet, TensorSpec
from agentkernel.tools.judge.memory_count import NOT_COUNTED, bytes_of, graph_values, run_node
from agentkernel.tools.judge.reference.axis import Axis, Call, Known, NoProof, Partial, State
from agentkernel.tools.judge.reference.axis_movement import RESHAPES
from agentkernel.tools.judge.reference.axis_rules import rule_of
from agentkernel.tools.judge.reference.oracle import in_float64
from agentkernel.tools.problem.capture import Captured
from agentkernel.tools.roofline.op_cost import op_name

if TYPE_CHECKING:
    from torch import nn


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


Change = Callable[[torch.Tensor, str, int], torch.Tensor]
"""What is done to a piece of an input or a weight (by name and first unit) before it is used; gives
fp64 for floats."""
EXPANDS = ("expand", "expand_as", "broadcast_to")


def as_double(value: torch.Tensor, name: str, start: int) -> torch.Tensor:
    """The plain change: floats become fp64."""
    return value.double() if value.is_floating_point() else value


def unchanged(value: torch.Tensor, name: str, start: int) -> torch.Tensor:
    """No change: the graph runs in the problem's own dtypes."""
    return value


class MissingValue(Exception):
    """The graph names a weight or a constant that the module does not have."""


class Evaluation(NamedTuple):
    """How the graph is run: what becomes of the values that it is given, and under which mode."""

    change: Change = as_double
    mode: Callable[[], AbstractContextManager[object]] = in_float64


class Sliced:
    """The module's outputs in fp64, or by another `evaluation`. `units` make a slice;
    `inputs` are read, never written."""

    def __init__(
        self,
        captured: Captured,
        slicing: Slicing,
        model: nn.Module,
        inputs: Sequence[object],
        units: int,
        evaluation: Evaluation | None = None,
    ) -> None:
        evaluation = evaluation or Evaluation()
        self._mode = evaluation.mode
        self._captured = captured
        self._slicing = slicing
        self._units = units
        self._change = evaluation.change
        self._given = dict(zip(captured.user_inputs, inputs, strict=True))
        self._nodes = {node.name: node for node in captured.graph.graph.nodes}
        self._device = _device_of(inputs)
        self._plans: dict[tuple[str, ...], list[Node]] = {}
        with torch.no_grad(), self._mode():
            self._whole = self._resident(model)
            self._gather()

    def ranges(self) -> Iterator[tuple[int, int]]:
        """First and last unit (excluded) of each slice."""
        for start in range(0, self._slicing.extent, self._units):
            yield start, min(start + self._units, self._slicing.extent)

    def block(self, start: int, stop: int) -> list[torch.Tensor | None]:
        """The outputs for units `start` to `stop`; None for those that do not carry the axis."""
        names = [
            name if axis is not None else None
            for name, axis in zip(self._captured.outputs, self._slicing.outputs, strict=True)
        ]
        with torch.no_grad(), self._mode():
            found = self._evaluate([name for name in names if name is not None], start, stop)
        return [None if name is None else cast("torch.Tensor", found[name]) for name in names]

    def whole(self) -> list[object]:
        """The outputs that do not carry the axis; None for those that do."""
        pairs = zip(self._captured.outputs, self._slicing.outputs, strict=True)
        return [
            self._whole.get(name) if axis is None and name is not None else None
            for name, axis in pairs
        ]

    def _resident(self, model: nn.Module) -> dict[str, object]:
        """Weights, constants and inputs that do not carry the axis."""
        state = model.state_dict(keep_vars=False)
        found: dict[str, object] = {}
        for node in self._nodes.values():
            if node.op != "placeholder" or self._slicing.axes.get(node.name) is not None:
                continue
            if node.name in self._given:
                value = self._given[node.name]
            elif node.name in self._captured.parameters:
                value = _named(model, state, self._captured.parameters[node.name])
            elif node.name in self._captured.constants:
                value = _named(model, state, self._captured.constants[node.name])
            else:
                continue
            if isinstance(value, torch.Tensor):
                value = self._change(value.to(self._device), node.name, 0)
            found[node.name] = value
        return found

    def _gather(self) -> None:
        """All that is whole, the reductions over the axis in as many passes as it takes."""
        self._settle(0)
        levels = self._slicing.levels
        for level in range(1, self._slicing.passes):
            names = [name for name in self._slicing.partial if levels[name] == level]
            gathered: dict[str, Gathered] = {
                name: Gathered(self._slicing.partial[name]) for name in names
            }
            for start, stop in self.ranges():
                found = self._evaluate(names, start, stop)
                for name, kept in gathered.items():
                    kept.add(cast("torch.Tensor", found[name]), self._count(kept, start, stop))
            for name, kept in gathered.items():
                self._whole[name] = kept.value()
            self._settle(level)

    def _count(self, kept: Gathered, start: int, stop: int) -> int:
        """What a slice weighs in a mean."""
        if kept.partial.counted is None:
            return stop - start
        name, ignored = kept.partial.counted
        if self._slicing.axes.get(name) is not None:
            target = cast("torch.Tensor", self._evaluate([name], start, stop)[name])
        else:
            target = cast("torch.Tensor", self._whole[name])[start:stop]
        return int((target != ignored).sum())

    def _settle(self, level: int) -> None:
        """Nodes of this level that depend on nothing but whole values."""
        slicing = self._slicing
        for node in self._nodes.values():
            if node.op not in ("call_function", "get_attr") or node.name in self._whole:
                continue
            if slicing.axes.get(node.name) is not None or node.name in slicing.partial:
                continue
            value = slicing.values[node.name]
            if isinstance(value, bool | int | float):
                self._whole[node.name] = value
            elif slicing.levels[node.name] == level and self._is_settled(node):
                self._whole[node.name] = run_node(self._captured, node, self._whole, self._device)

    def _is_settled(self, node: Node) -> bool:
        return all(item.name in self._whole for item in node.all_input_nodes)

    def _evaluate(self, names: Sequence[str], start: int, stop: int) -> dict[str, object]:
        """The named nodes that carry the axis, or reduce over it, for one slice."""
        steps = self._steps(names)
        last = _last_uses(steps, names)
        known: dict[str, object] = {}
        for node in steps:
            known[node.name] = self._step(node, known, start, stop)
            for name in last[node.name]:
                known.pop(name, None)
        return known

    def _steps(self, names: Sequence[str]) -> list[Node]:
        """What has to be computed for `names`, in order."""
        key = tuple(names)
        if key not in self._plans:
            needed: set[str] = set()
            open_names = list(names)
            while open_names:
                name = open_names.pop()
                if name in needed or name in self._whole:
                    continue
                needed.add(name)
                open_names += [item.name for item in self._nodes[name].all_input_nodes]
            self._plans[key] = [node for name, node in self._nodes.items() if name in needed]
        return self._plans[key]

    def _step(self, node: Node, known: Mapping[str, object], start: int, stop: int) -> object:
        axis = self._slicing.axes.get(node.name)
        if node.op == "placeholder":
            piece = _narrowed(cast("torch.Tensor", self._given[node.name]), axis, start, stop)
            return self._change(piece, node.name, start)
        here: Callable[[object], object] = lambda item: (  # noqa: E731
            self._argument(node, item, known, start, stop) if isinstance(item, Node) else item
        )
        args, kwargs = tree_map(here, (node.args, dict(node.kwargs)))
        name = op_name(node.target).removeprefix("aten.")
        if name in RESHAPES:
            shape = _shape(self._slicing.values[node.name], cast("Axis", axis), stop - start)
            return args[0].expand(shape) if name in EXPANDS else args[0].reshape(shape)
        if kwargs.get("device") is not None:
            kwargs["device"] = self._device
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _argument(
        self, node: Node, given: Node, known: Mapping[str, object], start: int, stop: int
    ) -> object:
        if given.name in known:
            return known[given.name]
        value = self._whole[given.name]
        cut = self._slicing.cuts.get((node.name, given.name))
        if cut is None:
            return value
        return _narrowed(cast("torch.Tensor", value), cut, start, stop)


class Gathered:
    """What the slices give for one reduction, combined."""

    def __init__(self, partial: Partial) -> None:
        self.partial = partial
        self._value: torch.Tensor | None = None
        self._count = 0

    def add(self, value: torch.Tensor, count: int) -> None:
        """One slice's value; `count` is its weight in a mean."""
        kind = self.partial.combine
        self._count += count
        if kind in ("mean", "counted mean"):
            # A slice in which nothing counts gives NaN, and no part of the mean.
            value = value * count if count else torch.zeros_like(value)
        self._value = value if self._value is None else self._combined(self._value, value)

    def value(self) -> torch.Tensor:
        """Of all slices."""
        assert self._value is not None
        if self.partial.combine in ("mean", "counted mean"):
            return self._value / self._count
        return self._value

    def _combined(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        kind, order = self.partial.combine, self.partial.order
        if kind == "max" or (kind == "norm" and math.isinf(order)):
            return torch.maximum(one, other)
        if kind == "min":
            return torch.minimum(one, other)
        if kind == "prod":
            return one * other
        if kind == "norm":
            return (one**order + other**order) ** (1 / order)
        return torch.logaddexp(one, other) if kind == "logsumexp" else one + other


def _named(model: nn.Module, state: Mapping[str, torch.Tensor], name: str) -> object:
    if name in state:
        return state[name]
    value: object = model
    for part in name.split("."):
        value = getattr(value, part, None)
    if not isinstance(value, torch.Tensor):
        raise MissingValue(f"the module has no tensor {name}")
    return value.detach()


def _device_of(inputs: Sequence[object]) -> torch.device:
    found = (item.device for item in inputs if isinstance(item, torch.Tensor))
    return next(found, torch.device("cpu"))


def _narrowed(value: torch.Tensor, axis: object, start: int, stop: int) -> torch.Tensor:
    assert isinstance(axis, Axis)
    return value.narrow(axis.dim, start * axis.factor, (stop - start) * axis.factor)


def _shape(value: object, axis: Axis, units: int) -> list[int]:
    shape = list(cast("torch.Tensor", value).shape)
    shape[axis.dim] = units * axis.factor
    return shape


def _last_uses(steps: Sequence[Node], names: Sequence[str]) -> dict[str, list[str]]:
    """Node -> the values that it is the last to read."""
    found: dict[str, list[str]] = {node.name: [] for node in steps}
    seen = set(names)
    for node in reversed(steps):
        for name in (node.name, *(item.name for item in node.all_input_nodes)):
            if name not in seen:
                seen.add(name)
                found[node.name].append(name)
    return found
