"""Source code with line numbers, highlights and notes, and unified diffs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.chat.replies import DiffOf, Explained, Source
from agentkernel.cli.rendering.text import View, flat, hanging, lines, truncate, truncate_line

COLOURED_CHARACTERS = 200_000
"""Longer texts stay without colours: they would take seconds."""
DIFF_STYLES = (
    ("+++", "bold"),
    ("---", "bold"),
    ("@@", "cyan"),
    ("+", "green"),
    ("-", "red"),
)


def source(reply: Source, view: View) -> RenderableType:
    """Numbered lines, cut at the width; > points at the marked ones."""
    return Group(_title(reply, view), *_numbered(reply, view))


def _title(reply: Source, view: View) -> Text:
    name = f"c{reply.number}: {reply.name}" if reply.number is not None else reply.name
    return Text(truncate(flat(name), view.width, view.unicode), style="bold")


def _numbered(reply: Source, view: View) -> Iterator[Text]:
    code = _coloured(reply.text, view)
    digits = _digits(reply, len(code))
    for number, line in enumerate(code, start=reply.first):
        yield _line(number, line, digits, number in reply.marked, view)


def _digits(reply: Source, count: int) -> int:
    return len(str(reply.first + max(0, count - 1)))


def _line(number: int, line: Text, digits: int, marked: bool, view: View) -> Text:
    bar = view.sign("│", "|")
    head = Text(f"{'>' if marked else ' '} {number:>{digits}} {bar} ")
    head.stylize("bold" if marked else "dim")
    whole = truncate_line(head + line, view.width, view.unicode)
    whole.no_wrap = True
    return whole


def _coloured(text: str, view: View) -> list[Text]:
    """The lines of `text`, Python in colours where they are wanted."""
    rows = text.split("\n")
    if len(rows) > 1 and rows[-1] == "":
        rows.pop()
    if view.colour and len(text) <= COLOURED_CHARACTERS:
        from rich.syntax import Syntax

        drawn = Syntax("", "python", theme="ansi_dark", background_color="default")
        found = list(drawn.highlight("\n".join(rows)).split("\n", allow_blank=True))
        if len(found) >= len(rows):
            return found[: len(rows)]
    return [Text(row) for row in rows]


def diff(reply: DiffOf, view: View) -> RenderableType:
    """A unified diff with its count of lines; + and - say it where colours do not."""
    if not reply.text.strip():
        return lines(f"{flat(reply.new)} is the same as {flat(reply.old)}.")
    rows = reply.text.rstrip("\n").split("\n")
    body = [row for row in rows if not row.startswith(("+++", "---"))]
    more = sum(row.startswith("+") for row in body)
    less = sum(row.startswith("-") for row in body)
    title = (
        f"{flat(reply.old)} -> {flat(reply.new)}: {_lines(more)} added, {_lines(less)} taken out"
    )
    drawn = [Text(truncate(row, view.width, view.unicode), style=_diff_style(row)) for row in rows]
    return Group(lines(Text(title, style="bold")), *drawn)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


def _diff_style(row: str) -> str:
    return next((style for start, style in DIFF_STYLES if row.startswith(start)), "")


def explained(reply: Explained, view: View) -> RenderableType:
    """Lines of code, each with what it does below; without a source the notes alone."""
    title = Text(truncate(flat(reply.name), view.width, view.unicode), style="bold")
    general = [lines(words) for line, words in reply.notes if line is None]
    noted = [(line, words) for line, words in reply.notes if line is not None]
    code: dict[int, Text] = {}
    if reply.source is not None:
        code = dict(enumerate(_coloured(reply.source.text, view), start=reply.source.first))
    digits = len(str(max((line for line, _ in noted), default=1)))
    marked = frozenset(reply.source.marked) if reply.source is not None else frozenset()
    parts = list(_noted_lines(noted, code, marked, digits, view))
    return Group(title, *general, *parts)


def _noted_lines(
    notes: Sequence[tuple[int, str]],
    code: dict[int, Text],
    marked: frozenset[int],
    digits: int,
    view: View,
) -> Iterator[RenderableType]:
    last = None
    indent = " " * (digits + 3) + view.sign("└ ", "\\ ")
    for line, words in notes:
        if line != last and line in code:
            yield _line(line, code[line], digits, line in marked, view)
        head = indent if line in code else f"  {line:>{digits}}: "
        yield hanging(head, words, view)
        last = line
