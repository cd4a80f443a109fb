"""What did a step bring, and where does the session stand now?"""

from __future__ import annotations

import re

from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.chat.changes import WORDS
from agentkernel.chat.domain_session import Changes, Place
from agentkernel.chat.replies import FilesWritten, PositionChanged, StepRan
from agentkernel.cli.rendering.page import View, facts, hanging, lines
from agentkernel.cli.rendering.plain import relative_path
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
    from agentkernel.cli.rendering.panel import figure_rows

    goal = GOAL.get(result.status)
    return [*figure_rows(result), *([] if goal is None else [("goal", goal)])]


def run_words(result: Result) -> str:
    """`1 draft, 19 s; agentkernel-runs/softmax-1/report.md`."""
    from agentkernel.cli.rendering.quantities import show_span

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


__all__ = ["moved", "place_words", "ran", "settings_words", "wrote"]
