"""Rendering of the replies of a chat session, for a terminal and for a pipe."""

from __future__ import annotations

import re
import textwrap

from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.chat.replies import (
    ClarificationNeeded,
    Compared,
    Cost,
    DiffOf,
    EditRequested,
    Explained,
    FilesWritten,
    KnowledgeFound,
    Planned,
    PositionChanged,
    Profiled,
    Reply,
    Roofline,
    SessionEnded,
    Source,
    StepRan,
    TextReply,
    TreeShown,
)
from agentkernel.chat.session_state import WORDS
from agentkernel.chat.tree import Changes, Place
from agentkernel.cli.rendering import candidates, code
from agentkernel.cli.rendering.roofline import roofline
from agentkernel.cli.rendering.run import figure_rows
from agentkernel.cli.rendering.text import (
    Page,
    View,
    escaped_model,
    facts,
    flat,
    hanging,
    lines,
    show_span,
    truncate,
)
from agentkernel.domain.knowledge import Entry
from agentkernel.workflows.answer import holds_for, relative_path
from agentkernel.workflows.outcome import Result

GOAL = {"met": "met", "improved": "not met"}
"""What a run's status says of the goal."""
CHANGE = re.compile(r"[a-z][\w .]*: .+ -> ")
"""How words on a setting that was changed begin."""


def ran(reply: StepRan, view: View) -> RenderableType:
    """What changed, the figures of what the step made, and where its run lies."""
    parts: list[RenderableType]
    settings, place = settings_words(reply.place.changes), _unsaid_place(reply)
    title = f"step {reply.step}{place}{f' ({settings})' if settings else ''}"
    if place or not reply.text:
        parts = [lines(Text(title, style="bold")), *([lines(reply.text)] if reply.text else [])]
    else:
        parts = [lines(Text.assemble((title, "bold"), f": {reply.text}"))]
    if reply.result is not None:
        rows = step_rows(reply.result) if reply.made else []
        parts += [facts(rows, view)] if rows else []
        parts.append(hanging("run  ", run_words(reply.result), view, style="bold"))
    return Group(*parts)


def _unsaid_place(reply: StepRan) -> str:
    """`, now at c3 on branch 2` where the words do not name the place."""
    told = reply.place.branch == 1 and f"stands at {_at(reply.place)}" in reply.text
    return "" if told else f", now at {_branch_words(reply.place)}"


def step_rows(result: Result) -> list[tuple[str, str]]:
    """The rows of the result's table that are news in a session. What a step hands over, and why it
    does not, is told by its words."""

    goal = GOAL.get(result.status)
    held = holds_for(result, None)
    rows = [*figure_rows(result), *([("holds for", held)] if held else [])]
    return [*rows, *([] if goal is None else [("goal", goal)])]


def run_words(result: Result) -> str:
    """`1 draft, 19 s; agentkernel-runs/softmax-1/report.md`."""

    drafts = "1 draft" if result.drafts == 1 else f"{result.drafts} drafts"
    where = result.run if result.report is None else relative_path(result.report)
    return f"{drafts}, {show_span(result.spent_s)}; {where}"


def moved(reply: PositionChanged, view: View) -> RenderableType:
    """Where the session stands now, or the setting that is another one; each said once."""
    arrow = view.sign("→ ", "-> ")
    at = f"At {_at(reply.place)}"
    if CHANGE.match(reply.text):
        return hanging(arrow, reply.text, view)
    if reply.text.startswith(at):
        here = f"now at {_branch_words(reply.place)}"
        return hanging(arrow, f"{here}{reply.text.removeprefix(at)}", view)
    parts: list[RenderableType] = [
        hanging(arrow, f"now at {place_words(reply.place)}", view, style="bold")
    ]
    if reply.text:
        parts.append(lines(reply.text))
    return Group(*parts)


def wrote(reply: FilesWritten, view: View) -> RenderableType:
    """The words, and the files that they do not name; as they are typed from here."""
    text = reply.text
    for path in reply.paths:
        text = text.replace(path, relative_path(path))
    rest = [relative_path(path) for path in reply.paths if path not in reply.text]
    return Group(*([lines(text)] if text else []), *(hanging("  ", path, view) for path in rest))


def place_words(place: Place) -> str:
    """`c3 on branch 2 (precision tf32)`."""
    settings = settings_words(place.changes)
    return f"{_branch_words(place)}{f' ({settings})' if settings else ''}"


def settings_words(changes: Changes) -> str:
    """`precision tf32, target h200`."""
    return ", ".join(f"{WORDS.get(key, key)} {value}" for key, value in changes.items())


def _branch_words(place: Place) -> str:
    return f"{_at(place)}{f' on branch {place.branch}' if place.branch != 1 else ''}"


def _at(place: Place) -> str:
    return "the module" if place.candidate is None else f"c{place.candidate}"


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


LEAST_WIDTH = 20


def render(reply: Reply, width: int, colour: bool, unicode: bool = True) -> RenderableType:
    """`reply` for a screen of `width` columns (at least 20).

    Without `colour` nothing but text is sent, without `unicode` nothing but ASCII. Symbols and
    words carry the meaning, and whatever is no visible sign is shown escaped.
    """
    view = View(max(LEAST_WIDTH, width), colour, unicode)
    return Page(_drawn(escaped_model(reply, unicode), view), view)


def _drawn(reply: Reply, view: View) -> RenderableType:
    match reply:
        case TextReply():
            return said(reply)
        case ClarificationNeeded():
            return not_understood(reply, view)
        case StepRan():
            return ran(reply, view)
        case PositionChanged():
            return moved(reply, view)
        case FilesWritten():
            return wrote(reply, view)
        case EditRequested():
            return lines(editing_words(reply))
        case SessionEnded():
            return lines(reply.text) if reply.text else Group()
        case KnowledgeFound():
            return search_results(reply, view)
        case Source():
            return code.source(reply, view)
        case DiffOf():
            return code.diff(reply, view)
        case Explained():
            return code.explained(reply, view)
        case Compared():
            return candidates.compared(reply, view)
        case Profiled():
            return candidates.profiled(reply, view)
        case Planned():
            return candidates.planned(reply, view)
        case Cost():
            return candidates.cost(reply, view)
        case TreeShown():
            return candidates.candidate_tree(reply.tree, view, reply.target)
        case Roofline():
            return roofline(reply, view)


def said(reply: TextReply) -> RenderableType:
    """Plain lines; ! before what could not be done."""
    return lines(reply.text) if reply.ok else lines(f"! {reply.text}", style="yellow")


def not_understood(reply: ClarificationNeeded, view: View) -> RenderableType:
    """What was not understood, the readings it may have, the nearest sentences."""
    parts: list[RenderableType] = [lines(f"? {reply.text}", style="yellow")]
    if reply.options:
        parts += [lines("Which one?")] if len(reply.options) > 1 else []
        parts += [
            hanging(f"  {number}. ", option, view)
            for number, option in enumerate(reply.options, start=1)
        ]
    if reply.nearest:
        parts.append(lines("You can say:"))
        parts += [hanging("  - ", flat(item.example), view) for item in reply.nearest]
    return Group(*parts)


def editing_words(reply: EditRequested) -> str:
    """What is to be edited, and where."""
    what = "the module" if reply.number is None else f"c{reply.number}"
    count = len(reply.text.splitlines())
    where = "" if reply.line is None else f", at line {reply.line}"
    return f"Editing {what} ({count} lines){where}."
