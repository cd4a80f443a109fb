"""Elements of a page before it is HTML: tables, tiles, plots and source diffs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import compress
from typing import Literal, NamedTuple

from agentkernel.domain.nightly import NightlyRun
from agentkernel.tools.charts.chart import Chart, Series
from agentkernel.tools.charts.svg import Frame

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

    def without_empty(self) -> Table:
        """The table without columns that no row has anything in."""
        used = [any(row.cells[place] for row in self.rows) for place in range(len(self.columns))]
        rows = (row._replace(cells=tuple(compress(row.cells, used))) for row in self.rows)
        return self._replace(columns=tuple(compress(self.columns, used)), rows=tuple(rows))


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
    href: str = ""


class ChangeGroup(NamedTuple):
    """Changes of a kind."""

    title: str
    tone: Tone
    lines: tuple[ChangeLine, ...]
    more: int = 0
    """How many more there are."""


class PlotFigure(NamedTuple):
    """A chart, drawn in two sizes; `legend` as (class, words)."""

    chart: Chart
    caption: str
    wide: Frame
    narrow: Frame
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""
    estimated: bool = False

    @property
    def named(self) -> list[Series]:
        """What the numbers in the chart stand for."""
        return [item for item in self.chart.series if item.label and not item.line]


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
    tables: tuple[Table, ...]
    figures: tuple[PlotFigure, ...]
    folds_title: str
    folds: tuple[Details, ...]
    versions: tuple[tuple[str, str], ...]
    groups: tuple[ChangeGroup, ...] = ()
    against: str = ""
    bars: tuple[Bar, ...] = ()
    bars_caption: str = ""
    folds_note: str = ""
    lost: tuple[ChangeLine, ...] = ()


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


def source_lines(before: str | None, after: str) -> tuple[DiffLine, ...]:
    """The lines that changed with three around them; all lines, unmarked, of what has no parent."""
    if before is None:
        return tuple(DiffLine("", text) for text in after.splitlines())
    kinds = {"+": "add", "-": "drop", "@": "hunk"}
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=3, lineterm="")
    return tuple(DiffLine(kinds.get(text[:1], ""), text) for text in [*lines][2:])
