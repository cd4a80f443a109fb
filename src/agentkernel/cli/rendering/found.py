"""What was found in the knowledge base, in a few lines a hit?"""

from __future__ import annotations

import textwrap

from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.chat.replies import KnowledgeFound
from agentkernel.cli.rendering.page import View, lines
from agentkernel.cli.rendering.plain import flat, truncate
from agentkernel.domain.knowledge import Entry

BEGIN_LINES = 3
"""Lines of an entry that are shown."""
INDENT = 3
UNTOLD = ("#", "Sources:", "```")
"""How paragraphs begin that say nothing by themselves."""


def search_results(reply: KnowledgeFound, view: View) -> RenderableType:
    """Title, name and beginning of each hit, and how the whole of one is seen."""
    if not reply.hits:
        return lines(f"Nothing found on {flat(reply.query)!r}. Next: fewer or other words.")
    parts: list[RenderableType] = []
    for rank, hit in enumerate(reply.hits, start=1):
        head = f"{rank}. {flat(hit.entry.title)}"
        parts.append(Text(truncate(head, view.width, view.unicode), style="bold"))
        parts += [_row(row, view) for row in (hit.entry.id, *beginning(hit.entry, view))]
    whole = f"The whole of one: agentkernel knowledge show {reply.hits[0].entry.id}"
    return Group(*parts, "", lines(whole))


def _row(text: str, view: View) -> Text:
    return Text(truncate(f"{' ' * INDENT}{text}", view.width, view.unicode))


def beginning(entry: Entry, view: View) -> list[str]:
    """The first lines: of code from its first kernel on, of prose as it fits the width."""
    if entry.problem:
        rows = [row for row in entry.answer.splitlines() if row.strip()]
        kernels = [place for place, row in enumerate(rows) if row.startswith("@triton")]
        first = kernels[0] + 1 if kernels else 0
        return rows[first : first + BEGIN_LINES]
    rows = textwrap.wrap(prose(entry.answer), max(1, view.width - INDENT))
    kept = rows[:BEGIN_LINES]
    if len(rows) > BEGIN_LINES:
        kept[-1] = truncate(f"{kept[-1]} {rows[BEGIN_LINES]}", view.width - INDENT, view.unicode)
    return kept


def prose(text: str) -> str:
    """The paragraphs of a note on one line, without headings, sources and code."""
    told = []
    for paragraph in text.split("\n\n"):
        rows = paragraph.strip().splitlines()
        while rows and rows[0].startswith("#"):
            rows = rows[1:]
        if rows and not rows[0].startswith(UNTOLD):
            told.append(flat(" ".join(rows)))
    return " ".join(told)


__all__ = ["search_results"]
