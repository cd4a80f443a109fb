"""Rules for the axis of operators that move elements: reshapes, permutes, slices, gathers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch.fx import Node

from agentkernel.tools.judge.reference.axis import Axis, Call, Rule, State, named


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
    nodes = call.tensors()
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


MOVEMENT_RULES: dict[str, Rule] = {
    **named(
        _reshaped,
        "view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as ravel",
    ),
    **named(_permute, "permute transpose t numpy_T mT swapaxes swapdims"),
    "movedim": _movedim,
    **named(_expand, "expand expand_as broadcast_to"),
    **named(_repeat, "repeat tile"),
    "select": _select,
    **named(_part, "slice narrow split split_with_sizes chunk tensor_split unsafe_split"),
    "unbind": _unbind,
    **named(_cat, "cat concat stack"),
    **named(_pad, "constant_pad_nd pad"),
    "embedding": _embedding,
    **named(_gather, "gather take_along_dim"),
    "index_select": _index_select,
    "index": _index,
}
"""Operators that move elements, as in `RULES`."""
RESHAPES = frozenset({"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze"}) | {
    *("unsqueeze", "view_as", "reshape_as", "ravel", "expand", "expand_as", "broadcast_to")
}
"""Operators whose sizes are given as numbers: a slice's are others."""
