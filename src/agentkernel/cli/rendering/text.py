"""Text on a terminal: figures with units, escaped text, and layout within a given width.

Sizes are in powers of 1024, times in the unit that suits them. Control characters of foreign
text are written out, so that it steers no terminal and forges no line. Without Unicode
everything is ASCII. A layout keeps its width and colours whichever console prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import SettingError
from agentkernel.domain.formatting import DASH, usd_text
from agentkernel.domain.plain_text import plain


class PlainConsole(Console):
    """A rich console whose texts all pass `plain`; rich's own control codes are no texts."""

    def render_str(self, text: str, **styles: Any) -> Text:
        """A text, before anyone measures how wide it is."""
        return super().render_str(plain(text), **styles)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of what is no string."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else plain(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)


SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*$", re.I)
SPAN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*$", re.I)
SIZE_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SPAN_FACTORS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def parse_bytes(text: str | None) -> int | None:
    """`512M` -> 536870912; powers of 1024."""
    if text is None:
        return None
    match = SIZE.match(text)
    if match is None or float(match[1]) == 0:
        raise SettingError(f"--max-memory {text!r} is no size. Expected e.g. 512M, 4G or 1048576.")
    return int(float(match[1]) * SIZE_FACTORS[match[2].upper()])


def parse_seconds(text: str | None) -> float | None:
    """`10m` -> 600.0."""
    if text is None:
        return None
    match = SPAN.match(text)
    if match is None or float(match[1]) == 0:
        raise SettingError(f"--time {text!r} is no time span. Expected e.g. 90s, 10m or 1h.")
    return float(match[1]) * SPAN_FACTORS[(match[2] or "s").lower()]


def show_us(value: float | None) -> str:
    """Microseconds to three figures, in the unit that suits them."""
    if value is None:
        return "-"
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    if value >= 1e3:
        return f"{value / 1e3:.3g} ms"
    return f"{value:.3g} us"


def show_bytes(value: float | None) -> str:
    """Bytes in powers of 1024, at most one decimal."""
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def show_ratio(value: float | None) -> str:
    """`1.31x`, or a dash for what nobody measured."""
    return "-" if value is None else f"{value:.2f}x"


def show_share(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{value:.0%}"


def show_error(value: float | None) -> str:
    """A relative error in two figures."""
    return "-" if value is None else f"{value:.1e}"


def show_span(seconds: float) -> str:
    """`1 h 2 min`, `3 min 4 s` or `5 s`."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole} s"


def show_count(value: int | None) -> str:
    """`12,340`, or a dash for what nobody counted."""
    return "-" if not value else f"{value:,}"


def show_usd(value: float | None, unpriced: int = 0) -> str:
    """USD; `unpriced` answers among them have no known price."""
    return usd_text(value, unpriced)


Model = TypeVar("Model", bound=Frozen)
TAB = 4
"""Columns of a tab."""


def escaped(text: str, unicode: bool = True) -> str:
    r"""`text` with everything that is no visible sign written out: ESC becomes `\x1b`.

    Line ends and tabs stay, tabs as blanks. Without `unicode` the answer is ASCII, a dash too.
    """
    text = plain(text)
    if not unicode:
        text = text.replace(DASH, "-").encode("ascii", "backslashreplace").decode("ascii")
    return text.expandtabs(TAB)


def escaped_model(value: Model, unicode: bool = True) -> Model:
    """A copy of `value` with every text in it, however deep, as `escaped` writes it."""
    changes = {
        name: _shown_value(getattr(value, name), unicode) for name in type(value).model_fields
    }
    return value.evolve(**changes)


def _shown_value(value: Any, unicode: bool) -> Any:
    match value:
        case str():
            return escaped(value, unicode)
        case Frozen():
            return escaped_model(value, unicode)
        case tuple() | list():
            return type(value)(_shown_value(item, unicode) for item in value)
        case dict():
            return {
                _shown_value(key, unicode): _shown_value(item, unicode)
                for key, item in value.items()
            }
    return value


def flat(text: str) -> str:
    """On one line."""
    return " ".join(text.split())


def truncate(text: str, width: int, unicode: bool = True) -> str:
    """At most `width` columns of a line; the cut is marked by … (by > in ASCII)."""
    if cell_len(text) <= width:
        return text
    line = Text(text)
    line.truncate(max(0, width - 1), overflow="crop")
    return line.plain + ("…" if unicode else ">") if width > 0 else ""


def truncate_line(line: Text, width: int, unicode: bool) -> Text:
    """The same for a line with styles."""
    if line.cell_len <= width:
        return line
    line = line.copy()
    line.truncate(max(0, width - 1), overflow="crop")
    line.append("…" if unicode else ">", style="dim")
    return line


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
    words = [max(map(longest_word, column)) for column in columns]
    room = _fitted(wide, words, view.width - GAP * (len(wide) - 1))
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


MOST_WHOLE = 16
"""A longer word, such as a hash or a path, may be broken."""


def longest_word(text: str) -> int:
    """Columns of the longest word of `text` that is not to be broken."""
    sizes = (cell_len(word) for word in text.split())
    return max((size for size in sizes if size <= MOST_WHOLE), default=0)


def _fitted(wide: Sequence[int], words: Sequence[int], width: int) -> list[int] | None:
    """The columns' widths within `width` together: the first as it is, what is wider than a fair
    share of the rest folded to it. None where a folded one would be too narrow, or would break one
    of its `words`, whose longest has so many columns."""
    if sum(wide) <= width:
        return list(wide)
    left, found = width - wide[0], {0: wide[0]}
    rest = sorted(range(1, len(wide)), key=lambda place: wide[place])
    while rest and wide[rest[0]] <= left // len(rest):
        place = rest.pop(0)
        found[place] = wide[place]
        left -= wide[place]
    share = left // len(rest) if rest else 0
    if share < max([LEAST_CELL, *(words[place] for place in rest)]):
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
