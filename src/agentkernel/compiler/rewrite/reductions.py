"""Which sum, mean or extremum over which dimensions is a node, and how is it written again?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.fx import Node

from agentkernel.compiler.rewrite.draft import Draft
from agentkernel.compiler.rewrite.reading import (
    argument,
    floating,
    numbers,
    op_of,
    rank,
    single_user,
    tensor_argument,
)

aten = torch.ops.aten
Kind = Literal["sum", "mean", "amax", "amin"]
TOTALS = {"sum.default": "sum", "mean.default": "mean"}
SUMS = {"sum.dim_IntList": "sum", "mean.dim": "mean"}
EXTREMA = {"amax.default": "amax", "amin.default": "amin"}
WHOLE_EXTREMA = {"max.default": "amax", "min.default": "amin"}
EXTREMA_WITH_PLACE = {"max.dim": "amax", "min.dim": "amin"}
ADAPTIVE = {f"adaptive_avg_pool{n}d.default": n for n in (1, 2, 3)}
ADAPTIVE_MAX = {f"adaptive_max_pool{n}d.default": n for n in (1, 2, 3)}


@dataclass(frozen=True)
class Reduction:
    """`kind` of `x` over `dims` (non-negative, sorted); `keep`: they stay as size 1."""

    kind: Kind
    x: Node
    dims: tuple[int, ...]
    keep: bool

    @property
    def word(self) -> str:
        """For people: `sum`, `mean`, `max`, `min`."""
        return self.kind.removeprefix("a")


def sum_of(node: Node) -> Reduction | None:
    """The sum or mean of floats that a node is; a global average pool counts as a mean."""
    name = op_of(node)
    kind = TOTALS.get(name) or SUMS.get(name)
    if kind is not None:
        if argument(node, "dtype") is not None:
            return None
        dims = argument(node, "dim") if name in SUMS else None
        keep = argument(node, "keepdim") if name in SUMS else False
        return _reduction(kind, node.args[0], dims, keep is True)
    if name in ADAPTIVE:
        spatial = ADAPTIVE[name]
        if numbers(argument(node, "output_size"), spatial) == (1,) * spatial:
            return _reduction("mean", node.args[0], list(range(-spatial, 0)), True)
    return None


def extremum_of(node: Node) -> Reduction | None:
    """The maximum or minimum that a node is: of `max.dim` the values, where no place is read."""
    name = op_of(node)
    if name in EXTREMA:
        return _reduction(
            EXTREMA[name], node.args[0], argument(node, "dim"), argument(node, "keepdim") is True
        )
    if name in WHOLE_EXTREMA:
        return _reduction(WHOLE_EXTREMA[name], node.args[0], None, False)
    source = node.args[0] if name == "getitem" else None
    if isinstance(source, Node) and op_of(source) in EXTREMA_WITH_PLACE:
        if node.args[1] != 0 or not single_user(source):
            return None
        kind = EXTREMA_WITH_PLACE[op_of(source)]
        dim, keep = argument(source, "dim"), argument(source, "keepdim")
        return _reduction(kind, source.args[0], [dim], keep is True)
    return None


def _reduction(kind: str, x: object, dims: object, keep: bool) -> Reduction | None:
    if not floating(x) or rank(x) == 0:
        return None
    listed: Sequence[object] = dims if isinstance(dims, list | tuple) and dims else range(rank(x))
    if isinstance(dims, int):
        listed = [dims]
    found = tuple(sorted(item % rank(x) for item in listed if isinstance(item, int)))
    return Reduction(kind, x, found, keep)  # type: ignore[arg-type]


def reduced(draft: Draft, kind: Kind, x: Node, dims: tuple[int, ...], keep: bool = True) -> Node:
    """Add the reduction of `x` over `dims`; none for no dimensions."""
    if not dims:
        return x
    op = {
        "sum": aten.sum.dim_IntList,
        "mean": aten.mean.dim,
        "amax": aten.amax.default,
        "amin": aten.amin.default,
    }[kind]
    return draft.call(op, x, list(dims), keep)


def input_of(node: Node) -> Node:
    """The first tensor argument."""
    schema = node.target._schema  # type: ignore[union-attr]
    return tensor_argument(node, schema.arguments[0].name)
