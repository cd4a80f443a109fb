"""Which kernel came from which, and what is different in its source?"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from agentkernel.domain.night import NightlyRun
from agentkernel.nightly.page.content import DiffLine


def lineages(history: Sequence[NightlyRun], night: NightlyRun) -> dict[str, tuple[str, ...]]:
    """Signature -> hashes of its kernels, oldest first, tonight's (or the lost one) last."""
    found: dict[str, list[str]] = {row.signature: [] for row in night.regions}
    earlier = [item for item in history if item.id != night.id and item.started <= night.started]
    for item in (*sorted(earlier, key=lambda one: one.started), night):
        for row in item.regions:
            chain = found.get(row.signature)
            if chain is None:
                continue
            for sha256 in (row.parent, row.sha256):
                if sha256 is not None:
                    if sha256 in chain:
                        chain.remove(sha256)
                    chain.append(sha256)
    return {signature: tuple(chain) for signature, chain in found.items()}


def source_diff(before: str, after: str) -> tuple[DiffLine, ...]:
    """The changed lines with three lines around them."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=3, lineterm="")
    return tuple(_told(text) for text in list(lines)[2:])


def plain_source(source: str) -> tuple[DiffLine, ...]:
    """All lines, none of them marked."""
    return tuple(DiffLine("", text) for text in source.splitlines())


def _told(text: str) -> DiffLine:
    kinds = {"+": "add", "-": "drop", "@": "hunk"}
    return DiffLine(kinds.get(text[:1], ""), text)
