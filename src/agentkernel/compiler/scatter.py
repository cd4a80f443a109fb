"""The Triton text of a scatter: values added at computed places, in any order."""

from __future__ import annotations

from agentkernel.compiler.emit import BodyLines, Emitter
from agentkernel.compiler.expressions import COMPARE
from agentkernel.compiler.ir import Node


def scatter_line(emitter: Emitter, node: Node, body: BodyLines) -> str:
    """The line that adds a tile of values to a buffer that holds what the sum begins with.

    Each lane adds for itself, so every lane has an address and none past the end takes part.
    """
    index, value = node.operands
    value_text = emitter.value(value, body)
    place = emitter.value(index, body).within(COMPARE)
    rows, cols = _varies(emitter, index)
    if not cols or (emitter.many_rows and not rows):
        shape = "[BLOCK_M, BLOCK_N]" if emitter.many_rows else "[BLOCK_N]"
        place += f" + tl.zeros({shape}, tl.int64)"
    mask = emitter.mask(rows=True, cols=True)
    guard = "" if mask is None else f", mask={mask}"
    target = f"{emitter.pointer(node)} + {place}"
    return f'tl.atomic_add({target}, {value_text.code}{guard}, sem="relaxed")'


def _varies(emitter: Emitter, index: Node) -> tuple[bool, bool]:
    """Whether the text of an index is another in each row of a tile, and in each column: not where
    it is read with no stride along them."""
    layout = emitter.region.layout
    if index in layout.loads:
        return emitter.walks_tile(layout.loads[index])
    if index.kind == "iota":
        return emitter.in_tile(index)
    found = [_varies(emitter, arg) for arg in index.operands]
    return any(rows for rows, _ in found), any(cols for _, cols in found)
