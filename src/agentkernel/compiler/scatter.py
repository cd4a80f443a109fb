"""The Triton text of a scatter: values added at computed places, in any order."""

from __future__ import annotations

from agentkernel.compiler.emit import BodyLines, Emitter
from agentkernel.compiler.ir import Node


def scatter_line(emitter: Emitter, node: Node, body: BodyLines) -> str:
    """The line that adds a tile of values to a buffer that holds what the sum begins with.

    Each lane adds for itself, so every lane has an address and none past the end takes part.
    """
    index, value = node.operands
    value_text = emitter.value(value, body)
    place = emitter.full_tile(index, emitter.value(index, body))
    mask = emitter.mask(rows=True, cols=True)
    guard = "" if mask is None else f", mask={mask}"
    target = f"{emitter.pointer(node)} + {place.code}"
    return f'tl.atomic_add({target}, {value_text.code}{guard}, sem="relaxed")'
