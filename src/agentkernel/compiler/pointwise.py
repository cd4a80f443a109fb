"""How does a kernel without reductions read: one flat index, or rows and columns?"""

from __future__ import annotations

from agentkernel.compiler.emit import BodyLines, Emitter, row_invariant


def pointwise_body(emitter: Emitter) -> list[str]:
    """Loads, arithmetic and stores at every place once."""
    lines: list[str] = []
    body = BodyLines(lines, lines)
    if emitter.schedule.invariant_first:
        for node in row_invariant(emitter):
            emitter.value(node, body)
    pairs = zip(emitter.region.stores, emitter.region.store_accesses, strict=True)
    return lines + [emitter.store_lines(store, access, body) for store, access in pairs]
