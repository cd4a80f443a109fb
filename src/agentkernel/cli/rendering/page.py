"""How does a picture keep its width, its signs and its colours, whatever console prints it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from agentkernel.cli.rendering.plain import flat, truncate

GAP = 2
"""Columns between those of a table."""
LEAST_CELL = 10
"""Columns below which a cell is not folded: the table becomes blocks of lines."""


@dataclass(frozen=True)
class View:
    """What may be used: columns of the screen, colours, signs beyond ASCII."""

    width: int
    colour: bool = False
    unicode: bool = True

    @property
    def dot(self) -> str:
        """A mark that separates facts on a line."""
        return " · " if self.unicode else " | "

    def sign(self, fine: str, plain: str) -> str:
        """`fine` where more than ASCII can be shown."""
        return fine if self.unicode else plain


@dataclass(frozen=True)
class Page:
    """A picture that is `view.width` columns wide at most and as plain as `view` says."""

    inner: RenderableType
    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        options = options.update(width=max(1, min(self.view.width, options.max_width)))
        if not self.view.unicode:
            options.encoding = "ascii"
        segments: Iterator[Segment] = iter(console.render(self.inner, options))
        if not self.view.colour:
            segments = (Segment(item.text) for item in segments if not item.control)
        yield from segments


def lines(*parts: str | Text, style: str = "") -> Text:
    """Texts below one another, words folded at the width."""
    joined = Text("\n", style=style, overflow="fold").join(
        part if isinstance(part, Text) else Text(part) for part in parts
    )
    joined.overflow = "fold"
    return joined


def hanging(head: str, text: str, view: View, style: str = "") -> RenderableType:
    """`head` once, `text` folded to the right of it; below it where that would be too narrow."""
    room = view.width - cell_len(head)
    if room < min(24, view.width // 2):
        return lines(Text(head.rstrip(), style=style), text)
    table = Table.grid(padding=0)
    table.add_column(width=cell_len(head), no_wrap=True)
    table.add_column(overflow="fold", width=room)
    table.add_row(Text(head, style=style), Text(text))
    return table


def facts(rows: Sequence[tuple[str, str]], view: View) -> RenderableType:
    """Names with values; the values are folded."""
    wide = max((cell_len(name) for name, _ in rows), default=0) + GAP
    return Group(
        *(
            hanging(name + " " * (wide - cell_len(name)), value, view, style="bold")
            for name, value in rows
        )
    )


def grid(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    view: View,
    right: Sequence[int] = (),
) -> RenderableType:
    """A table where it fits the width, with folded cells where that helps; else each row as a
    block of lines.

    `right`: places of columns that are set to the right.
    """
    table_rows = [[flat(value) for value in row] for row in rows]
    columns = list(zip(headings, *table_rows, strict=True))
    wide = [max(cell_len(value) for value in column) for column in columns]
    room = _fitted(wide, view.width - GAP * (len(wide) - 1))
    if room is None:
        return _blocks(headings, table_rows, view)
    table = Table(box=None, pad_edge=False, show_header=any(headings), padding=(0, GAP, 0, 0))
    for place, heading in enumerate(headings):
        justify = "right" if place in right else "left"
        table.add_column(
            Text(heading),
            justify=justify,  # type: ignore[arg-type]
            no_wrap=room[place] == wide[place],
            overflow="fold",
            width=room[place],
        )
    for row in table_rows:
        table.add_row(*(Text(value) for value in row))
    return table


def _fitted(wide: Sequence[int], width: int) -> list[int] | None:
    """The columns' widths within `width` together: the first as it is, what is wider than a fair
    share of the rest folded to it. None where a folded one would be too narrow."""
    if sum(wide) <= width:
        return list(wide)
    left, found = width - wide[0], {0: wide[0]}
    rest = sorted(range(1, len(wide)), key=lambda place: wide[place])
    while rest and wide[rest[0]] <= left // len(rest):
        place = rest.pop(0)
        found[place] = wide[place]
        left -= wide[place]
    share = left // len(rest) if rest else 0
    if share < LEAST_CELL:
        return None
    return [found.get(place, share) for place in range(len(wide))]


def _blocks(headings: Sequence[str], rows: Sequence[Sequence[str]], view: View) -> RenderableType:
    parts: list[RenderableType] = []
    for row in rows:
        parts.append(lines(Text(row[0] or "-", style="bold")))
        wide = max((cell_len(heading) for heading in headings[1:]), default=0)
        wide = min(wide, view.width // 3)
        for heading, value in zip(headings[1:], row[1:], strict=True):
            if value:
                head = truncate(heading, wide, view.unicode)
                parts.append(hanging(f"  {head}{' ' * (wide - cell_len(head))} ", value, view))
    return Group(*parts)


__all__ = ["Page", "View", "facts", "grid", "hanging", "lines"]
