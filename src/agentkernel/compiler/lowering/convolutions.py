"""Convolutions as calls, on channels-last memory where that is asked for, as shifted reads, or as
products.

cuDNN's kernels for tensor cores work on channels-last memory and otherwise rearrange every operand
and result. Where the kernels before and after a convolution read and write that layout themselves,
nothing is rearranged but what comes into the graph and leaves it.

A depthwise convolution of few taps is a sum of weighted elements, as a pooling is one of elements:
what stands before and behind it is computed in the same kernel.

A convolution whose windows lie side by side (a kernel as large as its stride, or of one place, no
padding) is a product of the weights with the picture under a permutation, which copies each element
once, and not at all where the kernel is of one place. The same of a transposed one is a product
whose result is read under a permutation.
"""

from __future__ import annotations

import itertools
import math
from typing import cast

from torch import fx

from agentkernel.compiler.ir import ONE, Node, Shape, numel, same
from agentkernel.compiler.lowering.index_maps import (
    all_guards,
    all_indices,
    dim_index,
    mul_index,
)
from agentkernel.compiler.lowering.pooling import WindowAxis, window_element, window_place
from agentkernel.compiler.lowering.products import multiplied, product
from agentkernel.compiler.lowering.registry import (
    Lowered,
    Lowering,
    lowers,
    shape_of,
    tensor_operands,
    to_expr,
)
from agentkernel.compiler.rewrite.patterns import Convolution, convolution_of

CHANNELS_LAST = "channels_last"
"""Mark of a call whose first operand and whose result lie channels-last: their nodes have the
channels as the last dimension."""

MOVABLE = ("conv2d.default", "conv2d.padding", "conv3d.default", "conv3d.padding",
           "conv_transpose2d.input", "conv_transpose3d.input")  # fmt: skip
"""Convolutions that may read and write channels-last memory."""


def channels_to_last(rank: int) -> tuple[int, ...]:
    """[N, C, ...] to [N, ..., C]."""
    return (0, *range(2, rank), 1)


def channels_to_second(rank: int) -> tuple[int, ...]:
    """[N, ..., C] to [N, C, ...]."""
    return (0, rank - 1, *range(1, rank - 1))


@lowers(*MOVABLE, "conv1d.default", "conv1d.padding", "conv_transpose1d.default")
def _convolution(state: Lowering, x: Node, *_: object, **__: object) -> Lowered:
    assert state.call is not None
    if state.convolutions == "products" and (found := lies_apart(state.call)) is not None:
        operands = [state.values[item] for item in tensor_operands(state.call)[1:]]
        weight, *bias = (item for item in operands if isinstance(item, Node))
        if multiplied(x, weight) and len(bias) == (found.bias is not None):
            return _product(state, found, x, weight, bias[0] if bias else None)
    if state.convolutions == "written_out" and (total := _weighted_sum(state, x)) is not None:
        return total
    rank = len(x.shape)
    movable = rank > 3 and state.convolutions == "channels_last"
    if not movable or rank != len(shape_of(state.call.meta["val"])):
        return state.library()
    inside = state.b.permute(x, channels_to_last(rank))
    if inside.kind == "view" or inside.kind == "input":
        inside = state.b.pointwise("copy", inside, dtype=x.dtype, name=f"{x.name}_last")
    shape = tuple(state.shape[place] for place in channels_to_last(rank))
    node = state.library_node(inside, shape, CHANNELS_LAST)
    return state.b.permute(node, channels_to_second(rank))


MOST_TAPS = 9
"""Elements of a window that are written out: more are read faster by a kernel of their own, which
keeps them for its neighbours."""


def _weighted_sum(state: Lowering, x: Node) -> Node | None:
    """A depthwise convolution of few taps as a sum of shifted reads; None for any other."""
    assert state.call is not None
    found = convolution_of(state.call)
    if found is None or found.transposed or found.groups != x.shape[1]:
        return None
    outputs = state.shape[1]
    if outputs != x.shape[1] or math.prod(found.kernel) > MOST_TAPS:
        return None
    b, lead = state.b, 2
    windows = [
        WindowAxis(x.shape[dim], state.shape[dim], size, step, before, gap)
        for dim, (size, step, before, gap) in enumerate(
            zip(found.kernel, found.stride, found.before, found.dilation, strict=True), lead
        )
    ]
    outer = all_indices(b, state.shape)[:lead]
    apart: list[list[tuple[int, tuple[Node, Node | None]]]] = []
    for dim, item in enumerate(windows, lead):
        first = mul_index(b, dim_index(b, state.shape, dim), item.stride)
        places = ((tap, window_place(state, item, first, tap)) for tap in range(item.window))
        apart.append([(tap, place) for tap, place in places if place is not None])
    operands = [state.values[item] for item in tensor_operands(state.call)[1:]]
    weight, *bias = (state.compute(item) for item in operands if isinstance(item, Node))
    line = (ONE, outputs, *(ONE,) * len(windows))
    total: Node | None = b.reshape(bias[0], line) if bias else None
    for chosen in itertools.product(*apart):
        guard = all_guards(b, [item for _, (_, item) in chosen if item is not None])
        index = [*outer, *(place for _, (place, _) in chosen)]
        value = window_element(state, "sum", x, index, guard, math.prod(found.kernel))
        factor = weight
        for dim, (tap, _) in enumerate(chosen, lead):
            factor = b.slice(factor, dim, to_expr(tap), ONE)
        term = b.pointwise("mul", value, b.reshape(factor, line), name="term")
        total = term if total is None else b.pointwise("add", total, term, name=b.label)
    return total


def lies_apart(call: fx.Node) -> Convolution | None:
    """The convolution that a call is, where its windows lie side by side or are of one place, with
    no padding, and neither channels nor windows in groups; None for any other."""
    found = convolution_of(call)
    if found is None or found.groups != 1 or any((*found.before, *found.after, *found.extra)):
        return None
    sizes = zip(found.kernel, found.stride, found.dilation, strict=True)
    fits = all(size == step and gap == 1 for size, step, gap in sizes)
    points = set(found.kernel) == {1} and (not found.transposed or set(found.stride) == {1})
    return found if fits or points else None


def _product(state: Lowering, found: Convolution, x: Node, weight: Node, bias: Node | None) -> Node:
    """The convolution as a product, in the layout that is read next where it may choose."""
    b, taps = state.b, math.prod(found.kernel)
    batch, channels, outputs = x.shape[0], x.shape[1], state.shape[1]
    line = (ONE, outputs, ONE)
    if found.transposed:
        flat = b.reshape(_in_order(state, x), (batch, channels, numel(x.shape[2:])))
        turned = b.reshape(weight, (channels, outputs * taps))
        left = b.permute(b.expand(turned, (batch, *turned.shape)), (0, 2, 1))
        made = product(state, left, flat, rounded=bias is None)
        made = b.reshape(made, (batch, outputs, taps * flat.shape[2]))
        return _woven(state, found, x, _biased(state, made, bias, line))
    rows = b.reshape(weight, (outputs, channels * taps))
    if taps == 1:
        right = b.reshape(_points(state, found, x), (batch, channels, numel(state.shape[2:])))
    else:
        patches = _patches(state, found, x)
        if _channels_go_last(cast("fx.Node", state.call)):
            made = product(state, patches, b.permute(rows, (1, 0)), rounded=bias is None)
            made = b.permute(_biased(state, made, bias, (outputs,)), (0, 2, 1))
            return b.reshape(made, state.shape)
        right = b.permute(patches, (0, 2, 1))
    made = product(state, b.expand(rows, (batch, *rows.shape)), right, rounded=bias is None)
    return b.reshape(_biased(state, made, bias, line), state.shape)


def _biased(state: Lowering, made: Node, bias: Node | None, line: Shape) -> Node:
    if bias is None:
        return made
    row = state.b.reshape(state.compute(bias), line)
    return state.b.pointwise("add", state.compute(made), row)


def _in_order(state: Lowering, x: Node) -> Node:
    """`x` as a product reads it: under another order of its dimensions it is stored anew."""
    if x.kind != "view" or x.op == "reshape":
        return x
    return state.b.pointwise("copy", x, dtype=x.dtype, name=f"{x.name}_copy")


def _points(state: Lowering, found: Convolution, x: Node) -> Node:
    """The places that a convolution of one tap reads."""
    read = x
    for dim, step in enumerate(found.stride, 2):
        if step > 1:
            read = state.b.slice(read, dim, to_expr(0), state.shape[dim], step)
    return _in_order(state, read)


def _patches(state: Lowering, found: Convolution, x: Node) -> Node:
    """The windows as [batch, places, channels x taps], in the order of the weights."""
    b, read, apart = state.b, x, list(x.shape[:2])
    for dim, size in enumerate(found.kernel, 2):
        places = state.shape[dim]
        if not same(x.shape[dim], places * size):
            read = b.slice(read, dim, to_expr(0), places * size)
        apart += [places, to_expr(size)]
    outer, inner = range(2, 2 + 2 * found.n, 2), range(3, 3 + 2 * found.n, 2)
    patches = b.permute(b.reshape(read, tuple(apart)), (0, *outer, 1, *inner))
    patches = b.pointwise("copy", patches, dtype=x.dtype, name=f"{x.name}_patches")
    depth = x.shape[1] * math.prod(found.kernel)
    return b.reshape(patches, (x.shape[0], numel(state.shape[2:]), depth))


def _woven(state: Lowering, found: Convolution, x: Node, made: Node) -> Node:
    """[batch, channels, taps x places of x] as what a transposed convolution gives."""
    places, taps = range(2 + found.n, 2 + 2 * found.n), range(2, 2 + found.n)
    whole = (*state.shape[:2], *map(to_expr, found.kernel), *x.shape[2:])
    order = (0, 1, *itertools.chain.from_iterable(zip(places, taps, strict=True)))
    return state.b.reshape(state.b.permute(state.b.reshape(made, whole), order), state.shape)


RESHAPES = ("aten.flatten.using_ints", "aten.view.default", "aten.reshape.default")
TURNS = ("aten.transpose.int", "aten.permute.default")


def _channels_go_last(call: fx.Node) -> bool:
    """Whether the only thing that is done with a result, in whatever shape, is to turn it."""
    node = call
    while len(node.users) == 1:
        (node,) = node.users
        if str(node.target) not in RESHAPES:
            return str(node.target) in TURNS
    return False
