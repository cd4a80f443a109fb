"""Lowerings of the few largest or smallest elements, as reductions one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import sympy

from agentkernel.compiler.ir import Expr, GraphBuilder, Node, UnsupportedOp
from agentkernel.compiler.lowering.index_maps import dim_index, int_or_expr
from agentkernel.compiler.lowering.registry import Lowered, Lowering, lowers

MOST_PICKED = 8
"""Elements of a row that are picked one by one, two reductions each; more are sorted by torch."""


@lowers("topk.default")
def _topk(
    state: Lowering, x: Node, k: int, dim: int = -1, largest: bool = True, _sorted: bool = True
) -> Lowered:
    """The k largest with their places, the first of equal ones first; NaN counts as the largest."""
    few = isinstance(k, int) and 0 < k <= MOST_PICKED
    if not few or not x.shape or not x.dtype.is_floating_point:
        raise UnsupportedOp("aten.topk", "of many elements, or of whole numbers")
    dim %= len(x.shape)
    picks = _picks(state, state.compute(x), k, dim, largest)
    values = _side_by_side(state.b, [value for value, _ in picks], dim)
    places = _side_by_side(state.b, [place for _, place in picks], dim)
    return state.cast(values, x.dtype), places


def _picks(
    state: Lowering, x: Node, count: int, dim: int, largest: bool
) -> list[tuple[Node, Node]]:
    """Values and places along `dim`, each the best of what those before it leave."""
    b, length = state.b, x.shape[dim]
    place = dim_index(b, x.shape, dim)
    nan = b.pointwise("isnan", x)
    key = x if largest else b.pointwise("where", nan, -math.inf, b.pointwise("neg", x))
    taken: Node | None = None
    found = []
    for _ in range(count):
        left = key if taken is None else b.pointwise("where", taken, -math.inf, key)
        best = b.reduce("max", left, (dim,), "best")
        at = _first_of(b, (key, best), (place, length), (nan, taken), dim, largest)
        pick, value = at, best
        if not largest:
            # What is no number stands behind all places: it is taken where nothing else is left.
            behind = b.pointwise("ge", at, int_or_expr(length))
            shifted = b.pointwise("sub", at, int_or_expr(length), dtype=at.dtype)
            pick = b.pointwise("where", behind, shifted, at, dtype=at.dtype, name="place")
            value = b.pointwise("where", behind, math.nan, b.pointwise("neg", best), name="best")
        found.append((value, pick))
        own = b.pointwise("eq", place, pick)
        taken = own if taken is None else b.pointwise("logical_or", taken, own, name="taken")
    return found


def _first_of(
    b: GraphBuilder, keys: tuple[Node, Node], places: tuple[Node, Expr],
    marks: tuple[Node, Node | None], dim: int, largest: bool,
) -> Node:  # fmt: skip
    """The first place along `dim` whose key is the best one and that is not taken."""
    (key, best), (place, length), (nan, taken) = keys, places, marks
    hit = b.pointwise("eq", key, best)
    if largest:
        both = b.pointwise("logical_and", nan, b.pointwise("isnan", best))
        hit = b.pointwise("logical_or", hit, both)
    else:
        behind = b.pointwise("add", place, int_or_expr(length), dtype=place.dtype)
        place = b.pointwise("where", nan, behind, place, dtype=place.dtype)
    if taken is not None:
        hit = b.pointwise("logical_and", hit, b.pointwise("logical_not", taken))
    none = int_or_expr(2 * length)
    candidate = b.pointwise("where", hit, place, none, dtype=place.dtype, name="candidate")
    return b.reduce("min", candidate, (dim,), "place")


def _side_by_side(b: GraphBuilder, parts: Sequence[Node], dim: int) -> Node:
    """Parts of size 1 along `dim` as one value."""
    if len(parts) == 1:
        return parts[0]
    shape = tuple(
        sympy.Integer(len(parts)) if at == dim else size for at, size in enumerate(parts[0].shape)
    )
    index, found = dim_index(b, shape, dim), parts[-1]
    for number in reversed(range(len(parts) - 1)):
        first = b.pointwise("eq", index, number)
        found = b.pointwise("where", first, parts[number], found, dtype=found.dtype)
    return found
