"""Rules for the axis of each ATen operator: where its result carries an axis of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch.fx import Node

from agentkernel.tools.roofline.op_cost import op_name

Combine = Literal["sum", "mean", "counted mean", "max", "min", "prod", "norm", "logsumexp"]


@dataclass(frozen=True)
class Axis:
    """Where a tensor carries the axis: unit u is elements u * `factor` to (u + 1) * `factor` of
    dimension `dim`."""

    dim: int
    factor: int = 1


@dataclass(frozen=True)
class Partial:
    """How the values that the slices give for one node become the whole one. `order` is a norm's;
    `counted` names the target of a loss and the value in it that counts for nothing."""

    combine: Combine
    order: float = 2.0
    counted: tuple[str, int] | None = None


State = Axis | None | tuple["Axis | None", ...]
"""Of a node: where it carries the axis, None where it does not, one for each of several results."""


class NoProof(Exception):
    """An operator at which the slices may meet, or that has no rule."""


class Known:
    """What is known of the nodes: values at full size, where each carries the axis, how reductions
    over it are combined, and which whole operands are cut."""

    def __init__(self, values: Mapping[str, object], states: dict[str, State], extent: int) -> None:
        self.values = values
        self.states = states
        self.extent = extent
        self.partial: dict[str, Partial] = {}
        self.cuts: dict[tuple[str, str], Axis] = {}

    def axis(self, node: Node) -> Axis | None:
        """Where `node` carries the axis; of several results, where any does."""
        state = self.states.get(node.name)
        if isinstance(state, tuple):
            return next((item for item in state if item is not None), None)
        return state

    def plain(self, value: object) -> object:
        """A literal argument, with numbers in place of nodes."""
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        return self.values.get(value.name) if isinstance(value, Node) else value


@dataclass
class Call:
    """One node: its arguments by name, and what is known of them."""

    proof: Known
    node: Node
    name: str
    given: dict[str, object]
    carriers: list[Node] = field(default_factory=list)

    def axis(self, argument: str) -> Axis | None:
        """Where that argument carries the axis."""
        value = self.given.get(argument)
        return self.proof.axis(value) if isinstance(value, Node) else None

    def shape(self, value: object) -> tuple[int, ...]:
        """Full sizes of a tensor argument or of a node."""
        if isinstance(value, str):
            value = self.given.get(value)
        found = self.proof.values[value.name] if isinstance(value, Node) else value
        return tuple(found.shape) if isinstance(found, torch.Tensor) else ()

    def own_shape(self) -> tuple[int, ...]:
        """Full sizes of the (first) result."""
        found = self.proof.values[self.node.name]
        first = found[0] if isinstance(found, tuple | list) else found
        return tuple(first.shape) if isinstance(first, torch.Tensor) else ()

    def number(self, argument: str, default: int = 0) -> int:
        """An integer argument, a node's value where it is one."""
        value = self.proof.plain(self.given.get(argument))
        return default if value is None else int(cast("int", value))

    def dims(self, argument: str, rank: int) -> list[int]:
        """Dimensions as non-negative numbers; none named means all."""
        value = self.proof.plain(self.given.get(argument))
        if value is None or value == []:
            return list(range(rank))
        names = value if isinstance(value, list | tuple) else [value]
        return [int(cast("int", item)) % max(rank, 1) for item in names]

    def cut(self, argument: object, axis: Axis) -> None:
        """A whole operand meets slices: only its own part of each is used."""
        node = self.given.get(argument) if isinstance(argument, str) else argument
        if not isinstance(node, Node):
            return
        shape = self.shape(node)
        if self.proof.axis(node) is not None or len(shape) <= axis.dim:
            raise self.refused()
        if shape[axis.dim] != self.proof.extent * axis.factor:
            raise self.refused()
        if self.proof.cuts.setdefault((self.node.name, node.name), axis) != axis:
            raise self.refused()

    def each(self, axis: Axis) -> State:
        """`axis` for the result, or for each of several."""
        results = self.proof.values[self.node.name]
        return (axis,) * len(results) if isinstance(results, tuple | list) else axis

    def alone(self, *arguments: str) -> None:
        """None but `arguments` carry the axis."""
        allowed = [self.given.get(item) for item in arguments]
        if any(node not in allowed for node in self.carriers):
            raise self.refused()

    def partial(self, combine: Combine, **more: object) -> None:
        """The reduction goes over the axis."""
        self.proof.partial[self.node.name] = Partial(combine, **more)  # type: ignore[arg-type]

    def refused(self) -> NoProof:
        """This operator may bring slices together."""
        return NoProof(f"slices may meet in {self.name}")


Rule = Callable[[Call], State]


def rule_of(node: Node) -> Rule:
    """The rule for the node's operator. Raises NoProof where there is none."""
    name = op_name(node.target).removeprefix("aten.")
    tags = getattr(node.target, "tags", ())
    if name in RULES:
        return RULES[name]
    if torch.Tag.nondeterministic_seeded in tags:
        raise NoProof(f"{name} draws random numbers")
    if torch.Tag.pointwise in tags:
        return _pointwise
    raise NoProof(f"{name} has no rule")


def _tensors(call: Call) -> list[Node]:
    """Tensor arguments in order, lists of them opened."""
    found: list[Node] = []
    for value in call.given.values():
        items = value if isinstance(value, list | tuple) else [value]
        tensors = [item for item in items if isinstance(item, Node)]
        found += [n for n in tensors if isinstance(call.proof.values[n.name], torch.Tensor)]
    return found


def _broadcast(call: Call, nodes: Sequence[Node], rank: int, drop: int = 0) -> Axis:
    """Operands meet element by element, but for their last `drop` dimensions."""
    axes: set[Axis] = set()
    for node in nodes:
        axis = call.proof.axis(node)
        if axis is not None:
            axes.add(Axis(axis.dim + rank - len(call.shape(node)), axis.factor))
            if axis.dim >= len(call.shape(node)) - drop:
                raise call.refused()
    if len(axes) != 1:
        raise call.refused()
    axis = axes.pop()
    for node in nodes:
        shape = call.shape(node)
        own = axis.dim - (rank - len(shape))
        if call.proof.axis(node) is None and own >= 0 and shape[own] != 1:
            call.cut(node, Axis(own, axis.factor))
    return axis


def _pointwise(call: Call) -> State:
    return _broadcast(call, _tensors(call), len(call.own_shape()))


def _identity(call: Call) -> State:
    call.alone("self", "input", "a")
    return call.proof.axis(call.carriers[0])


def _dropout(call: Call) -> State:
    if call.proof.plain(call.given.get("train")) is not False:
        raise NoProof("dropout draws random numbers")
    return _identity(call)


def _broadcast_tensors(call: Call) -> State:
    return call.each(_broadcast(call, _tensors(call), len(call.own_shape())))


def _loss(call: Call) -> State:
    """Losses of elements: a mean or a sum over all, or none."""
    nodes = _tensors(call)
    rank = max(len(call.shape(node)) for node in nodes)
    axis = _broadcast(call, nodes, rank)
    kind = call.number("reduction", 1)
    if kind == 0:
        return axis
    call.partial("mean" if kind == 1 else "sum")
    return None


def _row_loss(call: Call) -> State:
    """Losses of rows of two dimensions: one number a row."""
    nodes = _tensors(call)
    axes = {call.proof.axis(node) for node in nodes if len(call.shape(node)) > 0}
    if axes != {Axis(0)} or any(len(call.shape(node)) > 2 for node in nodes):
        raise call.refused()
    kind = call.number("reduction", 1)
    if kind == 0:
        return Axis(0)
    call.partial("mean" if kind == 1 else "sum")
    return None


def _cross_entropy(call: Call) -> State:
    call.alone("self", "target")
    target = call.given.get("target")
    if call.axis("self") != Axis(0) or len(call.shape("self")) < 2 or not isinstance(target, Node):
        raise call.refused()
    if call.axis("target") is None:
        call.cut(target, Axis(0))
    elif call.axis("target") != Axis(0):
        raise call.refused()
    kind = call.number("reduction", 1)
    if kind == 0:
        return Axis(0)
    classes = cast("torch.Tensor", call.proof.values[target.name]).dtype == torch.int64
    if kind == 2:
        call.partial("sum")
    elif not classes:
        call.partial("mean")
    elif call.given.get("weight") is not None:
        raise call.refused()
    else:
        call.partial("counted mean", counted=(target.name, call.number("ignore_index", -100)))
    return None


REDUCED: dict[str, Combine] = {
    "sum": "sum",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
    "prod": "prod",
    "any": "max",
    "all": "min",
    "logsumexp": "logsumexp",
    "norm": "norm",
    "linalg_vector_norm": "norm",
    "count_nonzero": "sum",
}


def _reduce(call: Call) -> State:
    """A reduction over other dimensions, or over the axis where its slices can be combined."""
    if isinstance(call.given.get("other"), Node):
        return _pointwise(call)
    call.alone("self", "input")
    axis = call.proof.axis(call.carriers[0])
    assert axis is not None
    rank = len(call.shape(call.carriers[0]))
    dims = call.dims("dim", rank)
    several = isinstance(call.proof.values[call.node.name], tuple | list)
    if axis.dim in dims:
        combine = REDUCED.get(call.name)
        if call.name in ("max", "min") and not several:
            combine = "max" if call.name == "max" else "min"
        if combine is None or several:
            raise call.refused()
        order = call.proof.plain(call.given.get("ord", call.given.get("p", 2)))
        power = 2.0 if order is None else float(cast("float", order))
        if combine == "norm" and not power > 0:
            raise call.refused()
        call.partial(combine, order=power)
        return None
    kept = call.proof.plain(call.given.get("keepdim")) is True
    found = axis if kept else Axis(axis.dim - sum(d < axis.dim for d in dims), axis.factor)
    return call.each(found)


def _other_dims(call: Call) -> State:
    """Every dimension but those named stays what it is: softmax, scans, sorting, flips."""
    call.alone("self", "input")
    axis = call.proof.axis(call.carriers[0])
    assert axis is not None
    rank = len(call.shape(call.carriers[0]))
    name = "dims" if "dims" in call.given else "dim"
    if call.proof.plain(call.given.get(name)) in (None, []) and name == "dims":
        raise call.refused()
    if axis.dim in call.dims(name, rank):
        raise call.refused()
    return call.each(axis)


def _last_dims(count: int) -> Rule:
    """Every dimension but the last `count` stays what it is."""

    def rule(call: Call) -> State:
        call.alone("self", "input")
        axis = call.proof.axis(call.carriers[0])
        assert axis is not None
        if axis.dim >= len(call.shape(call.carriers[0])) - count:
            raise call.refused()
        return call.each(axis)

    return rule


def _first_dim(call: Call) -> State:
    """Convolutions: entries of the batch are computed by themselves."""
    call.alone("self", "input")
    axis = call.proof.axis(call.carriers[0])
    rank = len(call.shape("weight") or call.own_shape())
    if axis is None or axis.dim != 0 or len(call.shape(call.carriers[0])) != rank:
        raise call.refused()
    return axis


def _prelu(call: Call) -> State:
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    if axis.dim == 1 and math.prod(call.shape("weight")) > 1:
        call.cut("weight", Axis(0, axis.factor))
    return axis


def _layer_norm(call: Call) -> State:
    call.alone("input", "self")
    axis = call.proof.axis(call.carriers[0])
    assert axis is not None
    inner = cast("Sequence[object]", call.given.get("normalized_shape") or [None])
    if axis.dim >= len(call.shape(call.carriers[0])) - len(inner):
        raise call.refused()
    return call.each(axis)


def _group_norm(call: Call) -> State:
    call.alone("input")
    axis = call.axis("input")
    if axis is None or axis.dim != 0:
        raise call.refused()
    if call.name == "native_group_norm":
        raise call.refused()
    return axis


def _channel_norm(call: Call) -> State:
    """Batch norm in eval mode, instance norm: statistics of a channel, given or of one sample."""
    call.alone("input")
    axis = call.axis("input")
    assert axis is not None
    instance = call.name == "instance_norm"
    if instance and (axis.dim > 1 or call.proof.plain(call.given.get("use_input_stats")) is False):
        raise call.refused()
    if call.name == "batch_norm" and call.proof.plain(call.given.get("training")) is not False:
        raise call.refused()
    if axis.dim == 1:
        for name in ("weight", "bias", "running_mean", "running_var"):
            if call.given.get(name) is not None:
                call.cut(name, Axis(0, axis.factor))
    several = isinstance(call.proof.values[call.node.name], tuple | list)
    return (axis, None, None) if several else axis


def _product(call: Call) -> State:
    """mm, bmm, matmul, mv, dot: rows, columns and batches stay, the inner dimension is summed."""
    call.alone("self", "mat2", "other", "vec", "tensor", "input", "batch1", "batch2")
    left, right = _tensors(call)[:2]
    return _multiplied(call, left, right, len(call.own_shape()))


def _multiplied(call: Call, left: Node, right: Node, rank: int) -> State:
    one, other = call.proof.axis(left), call.proof.axis(right)
    a, b = call.shape(left), call.shape(right)
    inner_a, inner_b = len(a) - 1, max(0, len(b) - 2)
    if (one is not None and one.dim == inner_a) or (other is not None and other.dim == inner_b):
        axis = one or other
        assert axis is not None
        if one is None:
            call.cut(left, Axis(inner_a, axis.factor))
        if other is None:
            call.cut(right, Axis(inner_b, axis.factor))
        if (one and one.dim != inner_a) or (other and other.dim != inner_b):
            raise call.refused()
        call.partial("sum")
        return None
    if one is not None and one.dim == len(a) - 2:
        if other is not None:
            raise call.refused()
        return Axis(rank - (2 if len(b) > 1 else 1), one.factor)
    if other is not None and other.dim == len(b) - 1:
        if one is not None:
            raise call.refused()
        return Axis(rank - 1, other.factor)
    return _broadcast(call, [left, right], max(len(a), len(b)), drop=2)


def _added_product(call: Call) -> State:
    """addmm, baddbmm: a product, and what is added to it."""
    names = ("mat1", "mat2") if "mat1" in call.given else ("batch1", "batch2")
    left, right = (cast("Node", call.given[name]) for name in names)
    call.alone("self", *names)
    rank = len(call.own_shape())
    axis = _multiplied(call, left, right, rank)
    if not isinstance(axis, Axis):
        raise call.refused()
    added = cast("Node", call.given["self"])
    shape, own = call.shape(added), axis.dim - (rank - len(call.shape(added)))
    if call.proof.axis(added) not in (None, Axis(own, axis.factor)):
        raise call.refused()
    if call.proof.axis(added) is None and own >= 0 and shape[own] != 1:
        call.cut(added, Axis(own, axis.factor))
    return axis


def _linear(call: Call) -> State:
    call.alone("input")
    axis = call.axis("input")
    assert axis is not None
    if axis.dim < len(call.shape("input")) - 1:
        return axis
    if call.given.get("bias") is not None:
        raise call.refused()
    call.cut("weight", Axis(len(call.shape("weight")) - 1, axis.factor))
    call.partial("sum")
    return None


def _einsum(call: Call) -> State:
    equation = str(call.given["equation"]).replace(" ", "")
    operands = _tensors(call)
    if "." in equation or "->" not in equation:
        raise call.refused()
    left, result = equation.split("->")
    terms = left.split(",")
    letters: set[tuple[str, int]] = set()
    for term, node in zip(terms, operands, strict=True):
        axis = call.proof.axis(node)
        if axis is not None:
            letters.add((term[axis.dim], axis.factor))
    if len(letters) != 1:
        raise call.refused()
    letter, factor = letters.pop()
    for term, node in zip(terms, operands, strict=True):
        if term.count(letter) > 1:
            raise call.refused()
        if letter in term and call.proof.axis(node) is None:
            call.cut(node, Axis(term.index(letter), factor))
    if letter in result:
        return Axis(result.index(letter), factor)
    call.partial("sum")
    return None


def _attention(call: Call) -> State:
    """Batches and heads stay; so do queries where no mask tells them apart by number."""
    call.alone("query", "key", "value", "attn_mask")
    axis, rank = call.axis("query"), len(call.shape("query"))
    mask = call.given.get("attn_mask")
    causal = call.proof.plain(call.given.get("is_causal")) is True
    if axis is not None and axis.dim == rank - 2:
        if causal or mask is not None or call.axis("key") or call.axis("value"):
            raise call.refused()
        return axis
    operands = [cast("Node", call.given[name]) for name in ("query", "key", "value")]
    if isinstance(mask, Node):
        operands.append(mask)
    if call.proof.plain(call.given.get("enable_gqa")) is True and axis != Axis(0):
        raise call.refused()
    return _broadcast(call, operands, rank, drop=2)


def _reshaped(call: Call) -> State:
    """A view of other sizes: the axis survives where its elements stay together."""
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    found = moved_axis(call.shape("self"), call.own_shape(), axis, call.proof.extent)
    if found is None:
        raise call.refused()
    return found


def moved_axis(before: Sequence[int], after: Sequence[int], axis: Axis, extent: int) -> Axis | None:
    """Where an axis of `extent` units lies after a reshape; None where it is torn."""
    outer = math.prod(before[: axis.dim])
    run = axis.factor * math.prod(before[axis.dim + 1 :])
    for dim, size in enumerate(after):
        inner = math.prod(after[dim + 1 :])
        if math.prod(after[:dim]) == outer and inner and run % inner == 0:
            factor = run // inner
            if size == extent * factor and size > 1:
                return Axis(dim, factor)
    return None


def _permute(call: Call) -> State:
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    order = list(range(len(call.shape("self"))))
    if call.name == "permute":
        order = call.dims("dims", len(order))
    elif call.name in ("t", "numpy_T", "mT", "adjoint"):
        order = order[:-2] + order[-2:][::-1] if call.name != "numpy_T" else order[::-1]
    elif order:
        one, other = (call.number(name) % len(order) for name in ("dim0", "dim1"))
        order[one], order[other] = order[other], order[one]
    return Axis(order.index(axis.dim), axis.factor)


def _movedim(call: Call) -> State:
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    rank = len(call.shape("self"))
    source, target = call.dims("source", rank), call.dims("destination", rank)
    rest = iter([dim for dim in range(rank) if dim not in source])
    order = [source[target.index(dim)] if dim in target else next(rest) for dim in range(rank)]
    return Axis(order.index(axis.dim), axis.factor)


def _expand(call: Call) -> State:
    call.alone("self", "other")
    axis = call.axis("self")
    if axis is None or call.given.get("self") is None:
        raise call.refused()
    return Axis(axis.dim + len(call.own_shape()) - len(call.shape("self")), axis.factor)


def _repeat(call: Call) -> State:
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    dim = axis.dim + len(call.own_shape()) - len(call.shape("self"))
    if call.own_shape()[dim] != call.shape("self")[axis.dim]:
        raise call.refused()
    return Axis(dim, axis.factor)


def _select(call: Call) -> State:
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    dim = call.number("dim") % len(call.shape("self"))
    if dim == axis.dim:
        raise call.refused()
    return Axis(axis.dim - (dim < axis.dim), axis.factor)


def _part(call: Call) -> State:
    """slice, narrow, split, chunk, unfold: of another dimension, or all of this one."""
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    dim = call.number("dim") % len(call.shape("self"))
    torn = call.name != "slice" or call.own_shape()[dim] != call.shape("self")[dim]
    if dim == axis.dim and torn:
        raise call.refused()
    return call.each(axis)


def _unbind(call: Call) -> State:
    return call.each(cast("Axis", _select(call)))


def _cat(call: Call) -> State:
    nodes = _tensors(call)
    axes = {call.proof.axis(node) for node in nodes} - {None}
    if len(axes) != 1:
        raise call.refused()
    axis = cast("Axis", axes.pop())
    rank = len(call.shape(nodes[0]))
    stacked = call.name == "stack"
    dim = call.number("dim") % (rank + stacked)
    if not stacked and dim == axis.dim:
        raise call.refused()
    for node in nodes:
        if call.proof.axis(node) is None:
            call.cut(node, axis)
    return Axis(axis.dim + (stacked and dim <= axis.dim), axis.factor)


def _pad(call: Call) -> State:
    call.alone("self")
    axis = call.axis("self")
    assert axis is not None
    pads = cast("Sequence[int]", call.proof.plain(call.given.get("pad", call.given.get("padding"))))
    place = len(call.shape("self")) - 1 - axis.dim
    if any(pads[2 * place : 2 * place + 2]):
        raise call.refused()
    return axis


def _embedding(call: Call) -> State:
    call.alone("indices")
    return call.axis("indices")


def _gather(call: Call) -> State:
    """Elements by their number along another dimension, index and values cut alike."""
    call.alone("self", "index")
    dim = call.number("dim") % max(1, len(call.shape("self")))
    one, other = call.axis("self"), call.axis("index")
    axis = one or other
    if axis is None or axis.dim == dim or (one and other and one != other):
        raise call.refused()
    if call.shape("self")[axis.dim] != call.shape("index")[axis.dim]:
        raise call.refused()
    for name, found in (("self", one), ("index", other)):
        if found is None:
            call.cut(name, axis)
    return axis


def _index_select(call: Call) -> State:
    call.alone("self", "index")
    dim = call.number("dim") % max(1, len(call.shape("self")))
    one, other = call.axis("self"), call.axis("index")
    if one is not None and other is None and one.dim != dim:
        return one
    if one is None and other is not None:
        return Axis(dim, other.factor)
    raise call.refused()


def _index(call: Call) -> State:
    """One tensor of numbers: the axis lies in it, or in another dimension."""
    indices = cast("Sequence[object]", call.given["indices"])
    used = [(place, item) for place, item in enumerate(indices) if isinstance(item, Node)]
    if len(used) != 1:
        raise call.refused()
    place, index = used[0]
    values = call.proof.values[index.name]
    if not isinstance(values, torch.Tensor) or values.dtype == torch.bool:
        raise call.refused()
    one, other = call.axis("self"), call.proof.axis(index)
    if one is not None and other is None and one.dim != place:
        return Axis(one.dim + (values.ndim - 1 if one.dim > place else 0), one.factor)
    if one is None and other is not None:
        return Axis(place + other.dim, other.factor)
    raise call.refused()


def _one_hot(call: Call) -> State:
    if call.number("num_classes", -1) < 0:
        raise call.refused()
    return call.axis("self")


def _distances(call: Call) -> State:
    """cdist: rows of either side, and batches."""
    call.alone("x1", "x2")
    left, right = (cast("Node", call.given[name]) for name in ("x1", "x2"))
    one, other = call.axis("x1"), call.axis("x2")
    rank = len(call.own_shape())
    if one is not None and other is None and one.dim == len(call.shape("x1")) - 2:
        return Axis(rank - 2, one.factor)
    if other is not None and one is None and other.dim == len(call.shape("x2")) - 2:
        return Axis(rank - 1, other.factor)
    return _broadcast(call, [left, right], rank, drop=2)


def _similarity(call: Call) -> State:
    """A number for each pair of vectors along `dim`."""
    nodes = _tensors(call)
    rank = max(len(call.shape(node)) for node in nodes)
    axis = _broadcast(call, nodes, rank)
    dim = call.number("dim", 1) % rank if call.name == "cosine_similarity" else rank - 1
    if axis.dim == dim:
        raise call.refused()
    if call.proof.plain(call.given.get("keepdim")) is True:
        return axis
    return Axis(axis.dim - (dim < axis.dim), axis.factor)


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    **_named(
        _pointwise,
        "hardswish rsub masked_fill floor_divide where log_sigmoid true_divide multiply subtract "
        "divide greater less zeros_like ones_like full_like",
    ),
    **_named(
        _identity,
        "_to_copy to contiguous alias detach lift_fresh_copy lift_fresh clone type_as "
        "resolve_conj resolve_neg",
    ),
    **_named(_dropout, "dropout feature_dropout alpha_dropout"),
    "prelu": _prelu,
    "broadcast_tensors": _broadcast_tensors,
    **_named(
        _loss,
        "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div "
        "binary_cross_entropy_with_logits soft_margin_loss hinge_embedding_loss "
        "poisson_nll_loss margin_ranking_loss",
    ),
    **_named(_row_loss, "triplet_margin_loss cosine_embedding_loss multi_margin_loss"),
    **_named(_cross_entropy, "cross_entropy_loss nll_loss nll_loss_nd nll_loss2d"),
    **_named(
        _reduce,
        "sum mean amax amin prod any all logsumexp norm linalg_vector_norm count_nonzero "
        "var std var_mean std_mean argmax argmin max min median mode kthvalue aminmax nansum",
    ),
    **_named(
        _other_dims,
        "softmax _softmax log_softmax _log_softmax cumsum cumprod cummax cummin logcumsumexp "
        "sort argsort topk flip roll glu",
    ),
    **_named(_last_dims(1), "max_pool1d max_pool1d_with_indices avg_pool1d adaptive_avg_pool1d"),
    **_named(_last_dims(1), "adaptive_max_pool1d reflection_pad1d replication_pad1d"),
    **_named(_last_dims(2), "max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d"),
    **_named(_last_dims(2), "_adaptive_avg_pool2d adaptive_max_pool2d reflection_pad2d"),
    **_named(_last_dims(2), "replication_pad2d upsample_nearest2d upsample_bilinear2d tril triu"),
    **_named(_last_dims(2), "upsample_bicubic2d im2col"),
    **_named(_last_dims(3), "max_pool3d max_pool3d_with_indices avg_pool3d adaptive_avg_pool3d"),
    **_named(_last_dims(3), "_adaptive_avg_pool3d adaptive_max_pool3d upsample_nearest3d"),
    **_named(_last_dims(3), "replication_pad3d upsample_trilinear3d pixel_shuffle pixel_unshuffle"),
    **_named(
        _first_dim,
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution "
        "_convolution channel_shuffle",
    ),
    **_named(_layer_norm, "layer_norm native_layer_norm rms_norm"),
    **_named(_group_norm, "group_norm"),
    **_named(_channel_norm, "batch_norm _native_batch_norm_legit_no_training instance_norm"),
    **_named(_product, "mm bmm matmul mv dot"),
    **_named(_added_product, "addmm baddbmm"),
    "linear": _linear,
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    **_named(
        _reshaped,
        "view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as ravel",
    ),
    **_named(_permute, "permute transpose t numpy_T mT swapaxes swapdims"),
    "movedim": _movedim,
    **_named(_expand, "expand expand_as broadcast_to"),
    **_named(_repeat, "repeat tile"),
    "select": _select,
    **_named(_part, "slice narrow split split_with_sizes chunk tensor_split unsafe_split"),
    "unbind": _unbind,
    **_named(_cat, "cat concat stack"),
    **_named(_pad, "constant_pad_nd pad"),
    "embedding": _embedding,
    **_named(_gather, "gather take_along_dim"),
    "index_select": _index_select,
    "index": _index,
    "one_hot": _one_hot,
    **_named(_distances, "cdist _cdist_forward"),
    **_named(_similarity, "cosine_similarity pairwise_distance"),
}
"""Operator -> rule; what is tagged as pointwise needs none."""
RESHAPES = frozenset({"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze"}) | {
    *("unsqueeze", "view_as", "reshape_as", "ravel", "expand", "expand_as", "broadcast_to")
}
"""Operators whose sizes are given as numbers: a slice's are others."""
