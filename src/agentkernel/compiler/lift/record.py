"""How does a graph travel to the process that TorchInductor runs in?"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_map

from agentkernel.tools.problem.capture import Captured

OPERATORS = {"getitem": operator.getitem}
"""Python's own functions that a functional graph calls on several results."""


@dataclass(frozen=True)
class TensorForm:
    """A placeholder: what it holds, without its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class NodeRecord:
    """One call. `target` is `aten::add.Tensor` or a name in OPERATORS; arguments that are values of
    the graph are `Ref`s."""

    name: str
    target: str
    args: tuple[object, ...]
    kwargs: dict[str, object]


@dataclass(frozen=True)
class Ref:
    """The value of the node so called."""

    name: str


@dataclass(frozen=True)
class Named:
    """`torch.NAME`: a dtype, a layout, a memory format. They are never pickled themselves: pickle
    would look for them in every module that is loaded, and name the first one that knows torch."""

    name: str


@dataclass(frozen=True)
class Device:
    """The one device."""


@dataclass(frozen=True)
class GraphRecord:
    """A functional graph of fixed sizes: inputs in order, calls in order, tensors that come out."""

    inputs: tuple[tuple[str, TensorForm | None], ...]
    calls: tuple[NodeRecord, ...]
    outputs: tuple[Ref, ...]

    def dumps(self) -> bytes:
        """For the other process."""
        return pickle.dumps(self)


class Unrecordable(Exception):
    """A graph with something that no record holds; the text says what."""


def record_graph(captured: Captured) -> GraphRecord:
    """The record of a specialised `captured`. Raises Unrecordable for nested graphs and the like.

    Inputs without a tensor (scalars) are recorded as None: their value is in the graph.
    """
    inputs: list[tuple[str, TensorForm | None]] = []
    calls: list[NodeRecord] = []
    outputs: tuple[Ref, ...] = ()
    for node in captured.graph.graph.nodes:
        if node.op == "placeholder":
            inputs.append((node.name, _form(node)))
        elif node.op == "call_function":
            args, kwargs = tree_map(_plain, (node.args, dict(node.kwargs)))
            calls.append(NodeRecord(node.name, _target(node), tuple(args), dict(kwargs)))
        elif node.op == "output":
            returned = tree_map(_plain, node.args[0])
            outputs = tuple(item for item in returned if isinstance(item, Ref))
        elif isinstance(getattr(captured.graph, str(node.target), None), GraphModule):
            raise Unrecordable("which branch depends on data (torch.cond, or a loop like it)")
        else:
            raise Unrecordable(f"the graph holds {node.op} {node.target}")
    return GraphRecord(tuple(inputs), tuple(calls), outputs)


def _plain(item: object) -> object:
    if isinstance(item, Node):
        return Ref(item.name)
    if isinstance(item, torch.dtype | torch.layout | torch.memory_format):
        return Named(str(item).removeprefix("torch."))
    if isinstance(item, torch.device):
        return Device()
    if item is None or isinstance(item, bool | int | float | str):
        return item
    raise Unrecordable(f"the graph holds {str(item)[:80]}")


def _form(node: Node) -> TensorForm | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    dtype = str(value.dtype).removeprefix("torch.")
    return TensorForm(tuple(value.shape), tuple(value.stride()), dtype)


def _target(node: Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        if node.target.namespace not in ("aten", "prims"):
            raise Unrecordable(f"the operator {node.target} is none of PyTorch's own")
        return f"{node.target.namespace}::{node.target._opname}.{node.target._overloadname}"
    name = getattr(node.target, "__name__", str(node.target))
    if OPERATORS.get(name) is not node.target:
        raise Unrecordable(f"the graph calls {name}")
    return name


def rebuild_graph(given: GraphRecord, device: torch.device) -> GraphModule:
    """The graph again, every device in it replaced by `device`; one placeholder a tensor input."""
    graph = Graph()
    made: dict[str, Node] = {}
    for name, form in given.inputs:
        if form is not None:
            made[name] = graph.placeholder(name)
    here: Callable[[object], object] = lambda item: _here(item, made, device)  # noqa: E731
    for call in given.calls:
        args, kwargs = tree_map(here, (call.args, call.kwargs))
        made[call.name] = graph.call_function(_resolved(call.target), args, kwargs)
    graph.output(tree_map(here, given.outputs))
    return GraphModule(torch.nn.Module(), graph)


def _here(item: object, made: dict[str, Node], device: torch.device) -> object:
    if isinstance(item, Ref):
        return made[item.name]
    if isinstance(item, Named):
        return getattr(torch, item.name)
    return device if isinstance(item, Device) else item


def _resolved(target: str) -> Callable[..., object]:
    if target in OPERATORS:
        return OPERATORS[target]
    space, _, name = target.partition("::")
    packet, _, overload = name.partition(".")
    found: Callable[..., object] = getattr(
        getattr(getattr(torch.ops, space), packet), overload or "default"
    )
    return found
