"""Elements of a page before it is HTML: tables, tiles, source diffs, and SVG drawing.

Plots take their colours from the page, light or dark. Labels are placed so that none covers
another label or a point.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

from agentkernel.domain.nightly import NightlyRun

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


TICK_GAP = 26.0
"""Least pixels between two labels of an axis."""
LETTER, TICK_SPACE = 7.2, 9.0
"""Pixels of a letter on an axis, and of the space between two labels."""
STEPS = (1.0, 2.0, 5.0)
FINE = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)


class Frame(NamedTuple):
    """The size of a drawing and its margins, in pixels."""

    width: int
    height: int
    left: int = 58
    right: int = 18
    top: int = 14
    bottom: int = 44

    @property
    def across(self) -> float:
        """Pixels between the axes' ends, left to right."""
        return float(self.width - self.left - self.right)

    @property
    def up(self) -> float:
        """Pixels between the axes' ends, bottom to top."""
        return float(self.height - self.top - self.bottom)


class LogAxis(NamedTuple):
    """A logarithmic axis from `low` to `high`, both above 0, over `length` pixels."""

    low: float
    high: float
    length: float

    def place(self, value: float) -> float:
        """Pixels from the low end; what lies outside is drawn at the end."""
        part = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        return min(max(part, 0.0), 1.0) * self.length

    def ticks(self, letter: float = 0.0) -> list[float]:
        """Round values inside, as many as there is room for; `letter`: pixels of one letter of
        their labels, where these stand side by side."""
        decades = math.log10(self.high / self.low)
        steps = (1.0,) if decades > 4 else STEPS if decades > 0.9 else FINE
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        found: list[float] = []
        values = [10.0**power * step for power in range(first, last + 1) for step in steps]
        for value in values:
            inside = self.low * 0.9999 <= value <= self.high * 1.0001
            if inside and (not found or self._apart(found[-1], value, letter)):
                found.append(value)
        return found

    def _apart(self, low: float, high: float, letter: float) -> bool:
        wide = letter * (len(tick_label(low)) + len(tick_label(high))) / 2
        return self.place(high) - self.place(low) >= max(TICK_GAP, wide + TICK_SPACE)


def svg_open(frame: Frame, name: str, title: str) -> str:
    """The first tag of a drawing with its name for those who do not see it."""
    return (
        f'<svg class="{name}" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
    )


def svg_line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    """A straight line of a class."""
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def svg_path(points: Sequence[tuple[float, float]], name: str) -> str:
    """A line through points of a class."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{name}" points="{joined}"/>'


def svg_text(x: float, y: float, text: str, name: str = "", anchor: str = "middle") -> str:
    """A text at its baseline."""
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def tick_label(value: float) -> str:
    """A tick's label: `0.01`, `1,000`, `1e6`."""
    if value >= 1e6 or value < 1e-3:
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def spread_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved apart to at least `gap`, in their order, within `low` and `high` where there
    is room for all."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = [0.0] * len(places)
    last = low - gap
    for index in order:
        last = moved[index] = max(places[index], last + gap)
    over = last - high
    for index in reversed(order):
        if over <= 0:
            break
        moved[index] -= over
        here = order.index(index)
        room = moved[order[here - 1]] + gap - moved[index] if here else 0.0
        over = max(room, 0.0)
    return moved


RADII = (7.0, 12.0, 17.0, 27.0, 37.0, 47.0)
"""Pixels from a point to its label, the nearest first."""
ANGLES = (0, 180, 270, 90, 315, 225, 45, 135)
"""Degrees, clockwise as the page's axes go: right, left, above, below, then between them."""
LABEL_LETTER, HEIGHT = 6.6, 9.0
"""Pixels of a figure of 11 px type, rounded up."""


class Box(NamedTuple):
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """True where they share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def holds(self, other: Box) -> bool:
        """True where the other lies inside."""
        return (
            self.left <= other.left
            and self.top <= other.top
            and other.right <= self.right
            and other.bottom <= self.bottom
        )


class Mark(NamedTuple):
    """A point that wants a label."""

    x: float
    y: float
    text: str


class Label(NamedTuple):
    """A text in its box; `led`: so far from its point that a line must lead there."""

    mark: Mark
    box: Box
    led: bool


def square_around(x: float, y: float, half: float) -> Box:
    """The square about a point."""
    return Box(x - half, y - half, x + half, y + half)


def boxes_along(points: Sequence[tuple[float, float]], step: float = 4.0) -> list[Box]:
    """A line through points as small boxes."""
    found = []
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        parts = max(1, math.ceil(math.hypot(x2 - x1, y2 - y1) / step))
        for index in range(parts + 1):
            part = index / parts
            found.append(square_around(x1 + part * (x2 - x1), y1 + part * (y2 - y1), 1.5))
    return found


def place_labels(marks: Sequence[Mark], taken: Sequence[Box], inside: Box) -> list[Label]:
    """Each label at the nearest free place, those of the first marks first; one that has none is
    left out. `taken`: what no label may cover. The same marks are always placed the same way."""
    covered = list(taken)
    found = []
    for mark in marks:
        label = next(
            (
                label
                for label in _places(mark)
                if inside.holds(label.box) and not any(label.box.meets(box) for box in covered)
            ),
            None,
        )
        if label is not None:
            covered.append(label.box)
            found.append(label)
    return found


def _places(mark: Mark) -> list[Label]:
    wide, high = LABEL_LETTER * len(mark.text), HEIGHT
    found = []
    for radius in RADII:
        for angle in ANGLES:
            across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            x = mark.x + across * (radius + wide / 2)
            y = mark.y + down * (radius + high / 2)
            box = Box(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
            found.append(Label(mark, box, led=radius > RADII[0]))
    return found


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
