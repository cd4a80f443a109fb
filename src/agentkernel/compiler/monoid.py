"""Monoids of reductions and scans: lanes, neutral elements, combining functions and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from agentkernel.compiler.expressions import TRITON_TYPES
from agentkernel.compiler.ir import Expr, Node, compute_dtype

Neutral = Literal["zero", "one", "lowest", "highest"]
INDEX_LIMIT = 2**31 - 2**16
"""Columns that a place of 32 bits counts, with room for a tile past the end."""


@dataclass(frozen=True)
class Lane:
    """One component of what a monoid combines: how an element becomes it, and its neutral."""

    name: str
    neutral: Neutral
    lift: Literal["x", "place", "one"] = "x"

    def dtype(self, operand: torch.dtype, length: Expr) -> torch.dtype:
        """Its type for elements of type `operand` in rows of `length`."""
        if self.lift != "place":
            return compute_dtype(operand)
        return torch.int64 if length.is_number and int(length) > INDEX_LIMIT else torch.int32

    def neutral_text(self, dtype: torch.dtype) -> str:
        """The neutral element as Triton source."""
        if self.neutral in ("zero", "one"):
            number = int(self.neutral == "one")
            return f"{number}.0" if dtype.is_floating_point else str(number)
        if dtype.is_floating_point:
            return '-float("inf")' if self.neutral == "lowest" else 'float("inf")'
        info = torch.iinfo(torch.int32 if dtype == torch.bool else dtype)
        return str(info.min if self.neutral == "lowest" else info.max)


@dataclass(frozen=True)
class Monoid:
    """An associative operation whose order does not matter, on one lane or several.

    `combine` is the helper that takes the lanes of two parts and gives those of both. `results` are
    Triton expressions over the lanes' names in braces, one a value that a reader may want.
    """

    lanes: tuple[Lane, ...]
    combine: str
    results: tuple[str, ...]
    scan: str = ""
    """Triton's own scan where there is one."""
    sign: str = ""
    """The operator that combines two of its lane, where there is one."""


def _extremum(op: str, neutral: Neutral) -> Monoid:
    return Monoid((Lane("best", neutral),), f"{op}imum", ("{best}",))


def _placed(op: str, neutral: Neutral) -> Monoid:
    lanes = (Lane("best", neutral), Lane("place", "zero", "place"))
    return Monoid(lanes, f"last_{op}", ("{best}", "({place}).to(tl.int64)"))


MONOIDS = {
    "sum": Monoid((Lane("total", "zero"),), "", ("{total}",), "tl.cumsum", "+"),
    "prod": Monoid((Lane("product", "one"),), "multiply", ("{product}",), "tl.cumprod", "*"),
    "max": _extremum("max", "lowest"),
    "min": _extremum("min", "highest"),
    "cummax": _placed("max", "lowest"),
    "cummin": _placed("min", "highest"),
    "logsumexp": Monoid(
        (Lane("top", "lowest"), Lane("total", "zero", "one")),
        "log_add",
        ("{top} + tl.log({total})",),
    ),
}
"""Scan operation -> its monoid. NaN is contagious in each, and the last place wins where elements
are equal, as in ATen's cummax."""


def lane_kinds(node: Node, length: Expr) -> list[str]:
    """The Triton types of the lanes of a scan along rows of `length`."""
    lanes = MONOIDS[node.op].lanes
    return [TRITON_TYPES[lane.dtype(node.args[0].dtype, length)] for lane in lanes]


def neutrals(node: Node, length: Expr) -> list[str]:
    """The neutral element of every lane."""
    source = node.args[0].dtype
    return [lane.neutral_text(lane.dtype(source, length)) for lane in MONOIDS[node.op].lanes]


def combined(monoid: Monoid, left: list[str], right: list[str]) -> str:
    """The lanes of two parts together, as an expression."""
    if monoid.sign:
        return f"{left[0]} {monoid.sign} {right[0]}"
    return f"{monoid.combine}({', '.join([*left, *right])})"
