"""Triangular products: which steps of K a tile takes where an operand or the result is cut to a
triangle.

An element of a matrix is kept where its column is at most its row plus `diagonal` (tril), or at
least that (triu); the others are 0. Operands are stored with these zeros, so that a tile may take
more steps than it needs, never fewer; of the result only what lies outside is free. A step that is
left out multiplies nothing but zeros: of an infinity or NaN there eager makes NaN, and this does
not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agentkernel.compiler.axes import Atom, leaves
from agentkernel.compiler.fusion import Region
from agentkernel.compiler.ir import Node, same

Matrix = Literal["a", "b", "out"]


@dataclass(frozen=True)
class Triangle:
    """What is kept of A[M, K], of B[K, N] or of the result: `lower` keeps columns up to the row
    plus `diagonal`, else those from it on."""

    of: Matrix
    lower: bool
    diagonal: int

    @property
    def turned(self) -> Triangle:
        """The same of the transposed matrix."""
        return replace(self, lower=not self.lower, diagonal=-self.diagonal)

    def share(self, rows: int, cols: int) -> float:
        """What part of [rows, cols] is kept."""
        shift = self.diagonal if self.lower else self.diagonal - 1
        below = _ramp(rows + shift) - _ramp(shift)
        past = _ramp(rows + shift - cols) - _ramp(shift - cols)
        kept = (below - past) / max(1, rows * cols)
        return kept if self.lower else 1 - kept


def _ramp(count: int) -> int:
    """1 + 2 + ... + count."""
    return count * (count + 1) // 2 if count > 0 else 0


def work_share(triangles: Sequence[Triangle], m: int, n: int, k: int) -> float:
    """What part of the multiplications of an [m, k] by [k, n] product is left, tiles aside."""
    sizes = {"a": (m, k), "b": (k, n), "out": (m, n)}
    return min((item.share(*sizes[item.of]) for item in triangles), default=1.0)


def step_lines(triangles: Sequence[Triangle]) -> list[str]:
    """Lines from the tile's place to `slice_start` and `slice_end`, its steps of K. Tiles with more
    steps come first, so that no long one is left for the end."""
    starts, ends, lines, outside = [], ["K"], [], []
    for item in triangles:
        if item.of == "a":
            if item.lower:
                lines.append("tile_m = tiles_m - 1 - tile_m")
                ends.append(_plus("(tile_m + 1) * BLOCK_M", item.diagonal))
            else:
                starts.append(_plus("tile_m * BLOCK_M", item.diagonal))
        elif item.of == "b":
            if item.lower:
                starts.append(_plus("tile_n * BLOCK_N", -item.diagonal))
            else:
                lines.append("tile_n = tiles_n - 1 - tile_n")
                ends.append(_plus("(tile_n + 1) * BLOCK_N", -item.diagonal))
        elif item.lower:
            edge = _plus("(tile_m + 1) * BLOCK_M", item.diagonal)
            outside.append(f"tile_n * BLOCK_N >= {edge}")
        else:
            edge = _plus("tile_m * BLOCK_M", item.diagonal)
            outside.append(f"(tile_n + 1) * BLOCK_N <= {edge}")
    start = "0"
    for text in starts:
        start = f"tl.maximum({start}, {text})"
    end = ends[0]
    for text in ends[1:]:
        end = f"tl.minimum({end}, {text})"
    for text in outside:
        end = f"tl.where({text}, 0, {end})"
    aligned = "0" if start == "0" else f"{start} // BLOCK_K * BLOCK_K"
    return [
        "# Steps of K in which a triangle is 0 are left out.",
        *lines,
        f"slice_start = {aligned}",
        f"slice_end = {end}",
    ]


def _plus(text: str, number: int) -> str:
    if number == 0:
        return text
    return f"{text} {'+' if number > 0 else '-'} {abs(number)}"


def operand_triangle(of: Matrix, operand: Node) -> Triangle | None:
    """The triangle that an operand is cut to, as tril and triu do it, views included."""
    if operand.kind == "view":
        below = operand.args[0]
        if len(below.shape) < 2:
            return None
        found = operand_triangle(of, below)
        if found is None:
            return None
        if operand.op == "permute":
            rank = len(operand.shape)
            swap = (*range(rank - 2), rank - 1, rank - 2)
            return found.turned if operand.attrs == swap else None
        kept = operand.op in ("reshape", "expand")
        kept = kept and all(map(same, operand.shape[-2:], below.shape[-2:]))
        return found if kept else None
    if operand.op in ("cast", "copy"):
        return operand_triangle(of, operand.args[0])
    if operand.op != "where" or len(operand.shape) < 2 or not _is_zero(operand.args[2]):
        return None
    rank = len(operand.shape)
    cut = _cut(operand.args[0])
    if cut is None or any(len(item.shape) != rank for item in (cut.row, cut.col)):
        return None
    if cut.row.attrs != (rank - 2,) or cut.col.attrs != (rank - 1,):
        return None
    return Triangle(of, cut.lower, cut.diagonal)


@dataclass(frozen=True)
class _Cut:
    """col <= row + diagonal, or >=, of two indices."""

    row: Node
    col: Node
    lower: bool
    diagonal: int


def _cut(keep: Node) -> _Cut | None:
    if keep.op not in ("le", "ge") or len(keep.args) != 2:
        return None
    col, row = keep.args
    diagonal = 0
    if row.op == "add" and len(row.args) == 2 and row.args[1].kind == "constant":
        number = row.args[1].attrs[0]
        if not isinstance(number, int):
            return None
        row, diagonal = row.args[0], number
    if row.kind != "iota" or col.kind != "iota":
        return None
    return _Cut(row, col, keep.op == "le", diagonal)


def _is_zero(node: Node) -> bool:
    return node.kind == "constant" and node.attrs[0] == 0


def result_triangle(
    product: Node, region: Region, rows: Sequence[Atom], cols: Sequence[Atom]
) -> Triangle | None:
    """The triangle outside of which an epilogue's result does not depend on the product: all that
    it makes of it goes through the kept side of one cut. `rows`, `cols`: the atoms of M and N."""
    found: set[Triangle] = set()
    seen: dict[Node, bool] = {}

    def depends(node: Node) -> bool:
        """Whether `node` has something of the product outside of the cuts."""
        if node in region.layout.loads:
            return region.layout.loads[node].buffer is product
        if not node.args:
            return False
        if node not in seen:
            cut = _cut(node.args[0]) if node.op == "where" else None
            walked = cut and {cut.row: rows, cut.col: cols}
            args: Sequence[Node] = node.args
            if cut and walked and all(walks(region, *item) for item in walked.items()):
                found.add(Triangle("out", cut.lower, cut.diagonal))
                args = (node.args[2],)
            seen[node] = any(depends(item) for item in args)
        return seen[node]

    return found.pop() if not depends(region.stores[0].node) and len(found) == 1 else None


def walks(region: Region, index: Node, atoms: Sequence[Atom]) -> bool:
    """Whether an index counts along just these atoms."""
    axis = index.attrs[0]
    assert isinstance(axis, int)
    dims: Mapping[Node, Sequence[Sequence[Atom]]] = region.layout.dims
    return index in dims and list(leaves(dims[index][axis])) == list(atoms)


__all__ = ["Triangle", "operand_triangle", "result_triangle", "step_lines", "work_share"]
