"""Monoids of reductions and scans: lanes, neutral elements, combining functions and results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from agentkernel.compiler.emit import INT32_LIMIT, Emitter
from agentkernel.compiler.expressions import TRITON_TYPES
from agentkernel.compiler.ir import Node, compute_dtype
from agentkernel.compiler.kernel_helpers import HELPERS

Neutral = Literal["zero", "one", "lowest", "highest"]


@dataclass(frozen=True)
class Lane:
    """One component of what a monoid combines: its neutral element, what an element of the row
    becomes, and its fold over a tile, of whole numbers perhaps another one.

    Folds are Triton over the names of all lanes, `axis`, `keep` and `many` (rows a program).
    """

    name: str
    neutral: Neutral
    fold: str = ""
    whole: str = ""
    lift: Literal["x", "place", "one"] = "x"

    def neutral_text(self, dtype: torch.dtype) -> str:
        """The neutral element as Triton source."""
        if self.neutral in ("zero", "one"):
            number = int(self.neutral == "one")
            return f"{number}.0" if dtype.is_floating_point else str(number)
        if dtype.is_floating_point:
            return '-float("inf")' if self.neutral == "lowest" else 'float("inf")'
        info = torch.iinfo(dtype)
        return str(info.min if self.neutral == "lowest" else info.max)


@dataclass(frozen=True)
class Monoid:
    """An associative operation whose order does not matter, on one lane or several.

    `combine` takes the lanes of two parts and gives those of both: a helper, or a function of
    Triton's. `results` are Triton over the lanes' names, one a value that a reader may want.
    """

    lanes: tuple[Lane, ...]
    combine: str
    results: tuple[str, ...]
    scan: str = ""
    """Triton's own scan where there is one."""
    sign: str = ""
    """The operator that combines two of its lane, where there is one."""


def _extremum(op: str, neutral: Neutral) -> Monoid:
    fold = f"{op}_along({{best}}, {{axis}}, {{many}})"
    lane = Lane("best", neutral, fold, f"tl.{op}({{best}}, axis={{axis}}{{keep}})")
    return Monoid((lane,), f"{op}imum", ("{best}",))


def _truth(op: str, neutral: Neutral) -> Monoid:
    lane = Lane("truth", neutral, f"tl.{op}({{truth}}, axis={{axis}}{{keep}})")
    return Monoid((lane,), f"tl.{op}imum", ("{truth} != 0",))


def _placed(op: str, neutral: Neutral, combine: str, *results: str) -> Monoid:
    fold = f"place_of_{op}({{best}}, {{place}}, {{axis}}, {{many}})"
    best = _extremum(op, neutral).lanes[0]
    return Monoid((best, Lane("place", "zero", fold, lift="place")), combine, results)


SUM = "tl.sum({total}, axis={axis}{keep})"
MONOIDS = {
    "sum": Monoid((Lane("total", "zero", SUM),), "", ("{total}",), "tl.cumsum", "+"),
    "prod": Monoid(
        (Lane("product", "one", "tl.reduce({product}, {axis}, multiply{keep})"),),
        "", ("{product}",), "tl.cumprod", "*",
    ),
    "max": _extremum("max", "lowest"),
    "min": _extremum("min", "highest"),
    "any": _truth("max", "zero"),
    "all": _truth("min", "one"),
    "argmax": _placed("max", "lowest", "larger_place", "{place}"),
    "argmin": _placed("min", "highest", "smaller_place", "{place}"),
    "cummax": _placed("max", "lowest", "last_max", "{best}", "({place}).to(tl.int64)"),
    "cummin": _placed("min", "highest", "last_min", "{best}", "({place}).to(tl.int64)"),
    "logsumexp": Monoid(
        (Lane("top", "lowest"), Lane("total", "zero", lift="one")),
        "log_add", ("{top} + tl.log({total})",),
    ),
}  # fmt: skip
"""Operation -> its monoid. NaN is contagious in each. Of equal elements the first place wins in a
reduction, the last one in a scan, as in ATen. Moments and sums of exponentials are reduced in
forms of their own (`rows_sweeps`)."""


def masked(emitter: Emitter, code: str, identity: str) -> str:
    """`code` with `identity` in the columns (and rows) that are out of range."""
    mask = emitter.col_mask
    return code if mask is None else f"tl.where({mask}, {code}, {identity})"


def row_sum(emitter: Emitter, code: str) -> str:
    """The sum of a tile's columns, one a row."""
    return f"tl.sum({code}, axis={emitter.reduce_axis}{_keep(emitter)})"


def row_max(emitter: Emitter, code: str) -> str:
    """The largest of a tile's columns, one a row, NaN left aside."""
    return f"tl.max({code}, axis={emitter.reduce_axis}{_keep(emitter)})"


def _keep(emitter: Emitter) -> str:
    return ", keep_dims=True" if emitter.many_rows else ""


def fields_of(emitter: Emitter, node: Node, count: int) -> list[Node]:
    """The fields of a reduction that the kernel's graph reads, or fresh ones: `count` of them."""
    found: dict[int, Node] = {}
    for candidate in all_operands(emitter):
        if candidate.kind == "field" and candidate.args[0] is node:
            index = candidate.attrs[0]
            assert isinstance(index, int)
            found[index] = candidate
    blank = [
        Node("field", "field", (node,), node.dtype, node.shape, (index,), "unused")
        for index in range(count)
    ]
    return [found.get(index, item) for index, item in enumerate(blank)]


def all_operands(emitter: Emitter) -> list[Node]:
    """All nodes that the region's nodes and stores read, through views."""
    seen: dict[Node, None] = {}
    waiting: list[Node] = [store.node for store in emitter.region.stores]
    waiting += [arg for node in emitter.region.nodes for arg in node.args]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen[node] = None
        if node.kind == "view":
            waiting.append(node.args[0])
    return list(seen)


Part = tuple[str, str, str]
"""What a chunk of a row leaves behind: a label, the value and its Triton type."""


@dataclass(frozen=True)
class Accumulator:
    """Running values of one reduction, one a lane: `init` before the loop, `step` within."""

    names: tuple[str, ...]
    init: tuple[str, ...]


@dataclass(frozen=True)
class MonoidText:
    """The text of one reduction or scan in one kernel."""

    emitter: Emitter
    node: Node

    @property
    def monoid(self) -> Monoid:
        """What it combines."""
        return MONOIDS[self.node.op]

    @property
    def dtypes(self) -> list[torch.dtype]:
        """The types of the lanes: sums are as wide as their result, truth values are integers."""
        operand, length = self.node.args[0].dtype, self.emitter.region.col_count
        value = self.node.dtype if self.monoid.sign else compute_dtype(operand)
        value = torch.int32 if value == torch.bool else value
        long = length.is_number and int(length) > INT32_LIMIT
        place = torch.int64 if long else torch.int32
        return [place if lane.lift == "place" else value for lane in self.monoid.lanes]

    @property
    def kinds(self) -> list[str]:
        """Their Triton types."""
        return [TRITON_TYPES[dtype] for dtype in self.dtypes]

    @property
    def neutrals(self) -> list[str]:
        """Their neutral elements as Triton source."""
        pairs = zip(self.monoid.lanes, self.dtypes, strict=True)
        return [lane.neutral_text(dtype) for lane, dtype in pairs]

    def operand(self, code: str) -> str:
        """An element in the type of its lane."""
        if compute_dtype(self.node.args[0].dtype) == self.dtypes[0]:
            return code
        return f"({code}).to({self.kinds[0]})"

    def labels(self, single: str) -> list[str]:
        """A name for each lane; `single` where there is one."""
        lanes = self.monoid.lanes
        return [single] if len(lanes) == 1 else [f"{self.node.name}_{lane.name}" for lane in lanes]

    def joined(self, left: Sequence[str], right: Sequence[str]) -> str:
        """The lanes of two parts together, as one expression."""
        if self.monoid.sign:
            return f"{left[0]} {self.monoid.sign} {right[0]}"
        combine = self.monoid.combine
        if combine in ("maximum", "minimum") and not self.dtypes[0].is_floating_point:
            combine = f"tl.{combine}"
        return self._noted(f"{combine}({', '.join([*left, *right])})")

    def folded(self, lanes: Sequence[str], axis: int | None = None) -> list[str]:
        """All elements of a tile together, one a row: an expression a lane. Along `axis`, where it
        is given, which is gone then."""
        named = dict(zip((lane.name for lane in self.monoid.lanes), lanes, strict=True))
        many = self.emitter.many_rows and axis is None
        axis = self.emitter.reduce_axis if axis is None else axis
        whole = not self.dtypes[0].is_floating_point
        return [
            self._noted(
                (lane.whole if whole and lane.whole else lane.fold).format(
                    **named, axis=axis, many=many,
                    keep=", keep_dims=True" if many else "",
                )
            )
            for lane in self.monoid.lanes
        ]  # fmt: skip

    def results(self, lanes: Sequence[str]) -> list[str]:
        """What readers want of finished lanes."""
        named = dict(zip((lane.name for lane in self.monoid.lanes), lanes, strict=True))
        return [result.format(**named) for result in self.monoid.results]

    def _noted(self, code: str) -> str:
        """`code`, once the helpers in it are asked for."""
        self.emitter.helpers |= HELPERS.keys() & set(re.findall(r"(?<![.\w])[a-z]\w*", code))
        return code
