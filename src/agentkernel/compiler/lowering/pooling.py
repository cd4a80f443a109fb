"""Lowerings of poolings.

Windows side by side are a reduction over dimensions of their own; those that overlap, are padded
or have gaps are read element by element at computed indices.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from agentkernel.compiler.ir import (
    Expr,
    Node,
    Scalar,
    Shape,
    UnsupportedOp,
    compute_dtype,
    numel,
)
from agentkernel.compiler.lowering.index_maps import (
    MAX_OPERATIONS,
    add_index,
    all_guards,
    all_indices,
    dim_index,
    int_or_expr,
    leading,
    linear_index,
    mul_index,
    read_at,
    static_int,
)
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers, to_expr

MAX_UNROLLED = 64
"""Elements of a window that a kernel writes out, one load each; a larger window is a reduction."""
MAX_RECOMPUTED_OPERATIONS = 96
"""Operations that the elements of a window take together: where they are more, the input is stored
first, since windows that overlap would compute it again."""


@dataclass(frozen=True)
class WindowAxis:
    """The windows along one dimension: their sizes in elements, and where they lie."""

    input: Expr
    output: Expr
    window: int
    stride: int
    padding: int = 0
    dilation: int = 1
    ceil: bool = False

    @property
    def reach(self) -> int:
        """Places from a window's first element to behind its last one."""
        return self.dilation * (self.window - 1) + 1

    @property
    def overshoots(self) -> bool:
        """May the last window end behind the padding?"""
        over = (self.output - 1) * self.stride + self.reach - self.input - 2 * self.padding
        return self.ceil and not (over.is_number and over <= 0)

    @property
    def side_by_side(self) -> bool:
        """Does each window begin where the one before it ends, the first where the input does?"""
        one_behind_other = self.stride == self.window or self.output == 1
        plain = self.padding == 0 and self.dilation == 1
        return one_behind_other and plain and not self.overshoots

    def below(self, element: int) -> bool:
        """May an element of the first window lie before the input?"""
        return element * self.dilation < self.padding

    def above(self, element: int) -> bool:
        """May an element of the last window lie behind the input?"""
        last = (self.output - 1) * self.stride + element * self.dilation - self.padding
        behind = last - self.input + 1
        if behind.is_number:
            return bool(behind > 0)
        return self.overshoots or self.dilation * (self.window - 1 - element) < self.padding


Windows = tuple[WindowAxis, ...]


@lowers("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(
    state: Lowering, x: Node, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor: int | None = None,
) -> Lowered:  # fmt: skip
    """The mean of each window."""
    windows = _windows(state, x, kernel, stride, padding, (1,), ceil_mode)
    x = _flat_outside(state, x, windows)
    total = _over_windows(state, "sum", x, windows)
    count = divisor or _count(state, _shape(x, windows), windows, padded=count_include_pad)
    if x.dtype.is_floating_point:
        mean = state.b.pointwise("div", total, count, name="mean")
        return state.b.reshape(mean, state.shape)
    # Whole numbers are divided as C does, towards zero.
    size = state.b.pointwise("abs", total)
    mean = state.b.pointwise("floordiv", size, count, dtype=torch.int64, name="mean")
    below = state.b.pointwise("lt", total, 0)
    signed = state.b.pointwise("where", below, state.b.pointwise("neg", mean), mean)
    return state.b.reshape(signed, state.shape)


@lowers("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
def _max_pool(
    state: Lowering, x: Node, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Lowered:  # fmt: skip
    """The largest of each window, NaN where there is one."""
    windows = _windows(state, x, kernel, stride, padding, dilation, ceil_mode)
    x = _flat_outside(state, x, windows)
    return state.b.reshape(_over_windows(state, "max", x, windows), state.shape)


@lowers("max_pool1d_with_indices.default", "max_pool2d_with_indices.default",
        "max_pool3d_with_indices.default")  # fmt: skip
def _max_pool_with_indices(
    state: Lowering, x: Node, kernel: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> Lowered:  # fmt: skip
    if not wants_places(state):
        largest = _max_pool(state, x, kernel, stride, padding, dilation, ceil_mode)
        assert isinstance(largest, Node)
        return state.cast(largest, state.dtype), None
    windows = _windows(state, x, kernel, stride, padding, dilation, ceil_mode)
    large = math.prod(item.window for item in windows) > MAX_UNROLLED
    if large or not x.dtype.is_floating_point:
        raise UnsupportedOp("aten.max_pool", "places in large windows, or of whole numbers")
    x = _flat_outside(state, x, windows)
    value, place = _largest_with_place(state, x, windows)
    return state.cast(state.b.reshape(value, state.shape), state.dtype), (
        state.b.reshape(place, state.shape)
    )


def wants_places(state: Lowering) -> bool:
    """Whether anything reads where the largest elements stood."""
    assert state.call is not None
    return any(user.args[1] == 1 for user in state.call.users)


def _largest_with_place(state: Lowering, x: Node, windows: Windows) -> tuple[Node, Node]:
    """The largest of each window and its flat place in the dimensions of the windows, one element
    after the other: the first of equal ones, the last that is no number."""
    b, shape, sizes = state.b, _shape(x, windows), x.shape[len(x.shape) - len(windows) :]
    value, place = b.constant(-math.inf, compute_dtype(x.dtype)), b.constant(-1, torch.int64)
    outside = False
    for element, places, guard in _elements(state, "max", x, windows):
        own = linear_index(b, places[len(places) - len(sizes) :], sizes)
        nan = b.pointwise("isnan", element)
        better = b.pointwise("logical_or", b.pointwise("gt", element, value), nan, name="better")
        if outside or guard is not None or place.kind == "constant":
            # Where all is -inf the first element of the input counts, none of the padding.
            better = b.pointwise("logical_or", better, b.pointwise("lt", place, 0))
            better = better if guard is None else b.pointwise("logical_and", better, guard)
        outside |= guard is not None
        value = b.pointwise("where", better, element, value, name="largest")
        place = b.pointwise("where", better, own, place, dtype=torch.int64, name="place")
    value, place = (b.expand(leading(state, item, shape), shape) for item in (value, place))
    return value, place


def _windows(
    state: Lowering, x: Node, kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool,
) -> Windows:  # fmt: skip
    """The windows of the call in work: aten.max_pool2d has two dimensions of them."""
    name = str(state.call.target) if state.call is not None else ""
    spatial = int(name.split("pool")[1][0])
    lead = len(x.shape) - spatial
    options = (kernel, stride or kernel, padding, dilation)
    each = zip(*(_full(item, spatial) for item in options), strict=True)
    return tuple(
        WindowAxis(x.shape[dim], state.shape[dim], window, step, before, gap, ceil_mode)
        for dim, (window, step, before, gap) in enumerate(each, lead)
    )


def _full(sizes: Sequence[int], spatial: int) -> list[int]:
    """One size a dimension; one size alone stands for all."""
    return list(sizes) * (spatial if len(sizes) == 1 else 1)


def _flat_outside(state: Lowering, x: Node, windows: Windows) -> Node:
    """`x` with the dimensions outside of its windows as one, so that a flat index is divided less
    often; not where operations are pushed to the places, whose other operands tell them apart."""
    lead = len(x.shape) - len(windows)
    if lead < 2 or x.root.kind == "pointwise" or all(item.side_by_side for item in windows):
        return x
    return state.b.reshape(x, (numel(x.shape[:lead]), *x.shape[lead:]))


def _over_windows(state: Lowering, op: str, x: Node, windows: Windows) -> Node:
    """`op` (sum, max) over each window: a sum takes padding for 0, the largest for less than all
    else."""
    name = "total" if op == "sum" else "largest"
    if all(item.side_by_side for item in windows):
        return folded(state, op, x, [to_expr(item.window) for item in windows], name)
    small = math.prod(item.window for item in windows) <= MAX_UNROLLED
    elements = [item.value for item in _elements(state, op, x, windows)] if small else []
    if not elements:  # or none of any window lies in the input
        return _reduced(state, op, x, windows, name)
    join = "add" if op == "sum" else "maximum"
    found = functools.reduce(
        lambda left, right: state.b.pointwise(join, left, right, name=name), elements
    )
    shape = _shape(x, windows)
    return state.b.expand(leading(state, found, shape), shape)


def _shape(x: Node, windows: Windows) -> Shape:
    """The shape of what the windows of `x` are folded to."""
    return (*x.shape[: len(x.shape) - len(windows)], *(item.output for item in windows))


def folded(state: Lowering, op: str, x: Node, windows: Sequence[Expr], name: str) -> Node:
    """[..., H, W] as [..., H', k, W', k], reduced over the k; what the last whole window leaves
    over is cut off."""
    lead = len(x.shape) - len(windows)
    cut, tiles = x, list(x.shape[:lead])
    for dim, size in enumerate(windows, lead):
        places = state.shape[dim]
        if places * size != x.shape[dim]:
            cut = state.b.slice(cut, dim, to_expr(0), places * size)
        tiles += [places, size]
    tiled = state.b.reshape(cut, tuple(tiles))
    return state.b.reduce(op, tiled, tuple(range(lead + 1, len(tiles), 2)), name)


class _Element(NamedTuple):
    """An element of every window, where it stands, and what holds where that is in the input."""

    value: Node
    places: Sequence[Node]
    guard: Node | None


def _elements(state: Lowering, op: str, x: Node, windows: Windows) -> Iterator[_Element]:
    """The element k of every window, for each k, in the order in which they lie in memory."""
    lead, shape = len(x.shape) - len(windows), _shape(x, windows)
    outer, count = all_indices(state.b, shape)[:lead], math.prod(item.window for item in windows)
    apart = []
    for dim, item in enumerate(windows, lead):
        first = mul_index(state.b, dim_index(state.b, shape, dim), item.stride)
        found = (window_place(state, item, first, element) for element in range(item.window))
        apart.append([place for place in found if place is not None])
    for chosen in itertools.product(*apart):
        places = [*outer, *(place for place, _ in chosen)]
        guard = all_guards(state.b, [item for _, item in chosen if item is not None])
        yield _Element(window_element(state, op, x, places, guard, count), places, guard)


def window_place(
    state: Lowering, item: WindowAxis, first: Node, element: int
) -> tuple[Node, Node | None] | None:
    """Where the element of the windows from `first` on lies, and what holds where it is one of the
    input: nothing where all are. None for one that no window has."""
    b = state.b
    place = add_index(b, first, element * item.dilation - item.padding)
    value = static_int(place)
    if value is not None and (value < 0 or (item.input.is_number and value >= item.input)):
        return None
    guards = []
    if item.below(element) and value is None:
        guards.append(b.pointwise("ge", place, 0, name="inside"))
    if item.above(element):
        guards.append(b.pointwise("lt", place, int_or_expr(item.input), name="inside"))
    return place, all_guards(state.b, guards)


def window_element(
    state: Lowering, op: str, x: Node, places: Sequence[Node], guard: Node | None, times_read: int
) -> Node:
    """The element at `places`; what padding counts where the guard does not hold."""
    b = state.b
    most = min(MAX_OPERATIONS, MAX_RECOMPUTED_OPERATIONS // times_read)
    value = read_at(b, x, places, len(places), guard, most)
    if op == "sum" and compute_dtype(x.dtype) != value.dtype:
        value = state.cast(value, compute_dtype(x.dtype))
    # A gather gives 0 by itself where its guard does not hold.
    if guard is None or (op == "sum" and value.op == "gather" and guard in value.args):
        return value
    filled = 0 if op == "sum" else _least(value.dtype)
    kind = compute_dtype(value.dtype)
    return b.pointwise("where", guard, value, filled, dtype=kind, name="element")


def _least(dtype: torch.dtype) -> Scalar:
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _reduced(state: Lowering, op: str, x: Node, windows: Windows, name: str) -> Node:
    """The elements of each window as dimensions of their own behind those of the output, reduced
    over these."""
    b, shape = state.b, _shape(x, windows)
    lead, rank = len(x.shape) - len(windows), len(x.shape)
    whole = (*shape, *(to_expr(item.window) for item in windows))
    places, guards = all_indices(b, whole)[:lead], []
    for dim, item in enumerate(windows, lead):
        first = add_index(b, mul_index(b, dim_index(b, whole, dim), item.stride), -item.padding)
        element = mul_index(b, dim_index(b, whole, rank + dim - lead), item.dilation)
        place = add_index(b, first, element)
        places.append(place)
        if any(map(item.below, range(item.window))):
            guards.append(b.pointwise("ge", place, 0, name="inside"))
        if any(map(item.above, range(item.window))):
            guards.append(b.pointwise("lt", place, int_or_expr(item.input), name="inside"))
    guard = all_guards(state.b, guards)
    value = window_element(state, op, x, places, guard, math.prod(item.window for item in windows))
    value = b.expand(leading(state, value, whole), whole)
    return b.reshape(b.reduce(op, value, tuple(range(rank, len(whole))), name), shape)


def _count(state: Lowering, shape: Shape, windows: Windows, *, padded: bool) -> Node | int:
    """The elements of each window: all that padding has too, or those of the input alone."""
    b, lead = state.b, len(shape) - len(windows)
    fixed, free = 1, []
    for dim, item in enumerate(windows, lead):
        if not item.overshoots and (padded or item.padding == 0):
            fixed *= item.window
            continue
        first = add_index(b, mul_index(b, dim_index(b, shape, dim), item.stride), -item.padding)
        last, end = add_index(b, first, item.window), item.input + (item.padding if padded else 0)
        end_of_it = b.pointwise("minimum", last, int_or_expr(end), dtype=torch.int64)
        if not padded:
            first = b.pointwise("maximum", first, 0, dtype=torch.int64)
        free.append(b.pointwise("sub", end_of_it, first, dtype=torch.int64, name="count"))
    if not free:
        return fixed
    count = functools.reduce(lambda left, right: mul_index(b, left, right), free)
    return state.cast(mul_index(b, count, fixed), compute_dtype(state.dtype))
