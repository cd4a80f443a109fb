"""What is a page made of, before it is HTML?"""

from __future__ import annotations

from typing import Literal, NamedTuple

Tone = Literal["", "good", "bad", "warn", "quiet"]


class Column(NamedTuple):
    """`estimated` columns hold estimates alone, all others none."""

    key: str
    title: str
    number: bool = False
    estimated: bool = False


class Cell(NamedTuple):
    """`sort` orders the rows, None after all others; `more` is small print below the text."""

    text: str
    sort: float | str | None = None
    more: str = ""
    tone: Tone = ""
    href: str = ""


class Row(NamedTuple):
    """The cells in the order of the columns, None for a figure that there is not."""

    id: str
    cells: tuple[Cell | None, ...]


class Table(NamedTuple):
    """`note` says what was left out."""

    id: str
    title: str
    caption: str
    noun: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""


class Tile(NamedTuple):
    """One figure of the head."""

    title: str
    value: str
    more: str = ""
    tone: Tone = ""
    estimated: bool = False


class ChangeLine(NamedTuple):
    """One change: what it is of, from what to what."""

    what: str
    text: str
    tone: Tone = ""
    href: str = ""


class ChangeGroup(NamedTuple):
    """Changes of a kind."""

    title: str
    tone: Tone
    lines: tuple[ChangeLine, ...]
    more: int = 0
    """How many more there are."""


class PlotLabel(NamedTuple):
    """A label of a plot, in words, and where its row is."""

    text: str
    href: str


class PlotFigure(NamedTuple):
    """A plot in two sizes; `legend` as (class, words); `named`: what its labels stand for."""

    title: str
    caption: str
    wide: str
    narrow: str
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""
    estimated: bool = False
    named: tuple[PlotLabel, ...] = ()


class Bar(NamedTuple):
    """Something that was spent; `share`, 0 to 1, of the longest bar."""

    label: str
    share: float
    text: str
    tone: Tone = ""
    href: str = ""


class DiffLine(NamedTuple):
    """`kind` is "add", "drop", "hunk" or ""."""

    kind: str
    text: str


class Details(NamedTuple):
    """A kernel or candidate that opens on a click."""

    id: str
    title: str
    state: str
    tone: Tone
    facts: tuple[tuple[str, str], ...]
    chain: tuple[str, ...]
    """Its ancestors, oldest first, itself last."""
    source_title: str
    source: tuple[DiffLine, ...]
    record: str
    """The certificate as JSON; "" where there is none."""


class Page(NamedTuple):
    """All of a page."""

    title: str
    kicker: str
    headline: str
    tone: Tone
    facts: tuple[str, ...]
    tiles: tuple[Tile, ...]
    groups: tuple[ChangeGroup, ...]
    against: str
    tables: tuple[Table, ...]
    figures: tuple[PlotFigure, ...]
    bars: tuple[Bar, ...]
    bars_caption: str
    folds_title: str
    folds: tuple[Details, ...]
    folds_note: str
    versions: tuple[tuple[str, str], ...]
    lost: tuple[ChangeLine, ...]


def without_empty(table: Table) -> Table:
    """The table without columns that no row has anything in."""
    used = [
        place
        for place in range(len(table.columns))
        if any(row.cells[place] is not None for row in table.rows)
    ]
    return table._replace(
        columns=tuple(table.columns[place] for place in used),
        rows=tuple(
            row._replace(cells=tuple(row.cells[place] for place in used)) for row in table.rows
        ),
    )
