"""What does each answer of a session look like, on a terminal and in a pipe?"""

from __future__ import annotations

from rich.console import Group, RenderableType

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
from agentkernel.cli.rendering.found import search_results
from agentkernel.cli.rendering.page import Page, View, hanging, lines
from agentkernel.cli.rendering.plain import escaped_model, flat
from agentkernel.cli.rendering.steps import moved, place_words, ran, wrote

LEAST_WIDTH = 20


def render(reply: Reply, width: int, colour: bool, unicode: bool = True) -> RenderableType:
    """`reply` for a screen of `width` columns (at least 20).

    Without `colour` nothing but text is sent, without `unicode` nothing but ASCII. Symbols and
    words carry the meaning, and whatever is no visible sign is shown escaped.
    """
    view = View(max(LEAST_WIDTH, width), colour, unicode)
    return Page(_drawn(escaped_model(reply, unicode), view), view)


def _drawn(reply: Reply, view: View) -> RenderableType:
    """Pictures are imported where they are wanted: the first prompt does not wait for them."""
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
        case Source() | DiffOf() | Explained():
            return _code(reply, view)
    return _picture(reply, view)


def _code(reply: Source | DiffOf | Explained, view: View) -> RenderableType:
    from agentkernel.cli.rendering import code

    match reply:
        case Source():
            return code.source(reply, view)
        case DiffOf():
            return code.diff(reply, view)
        case Explained():
            return code.explained(reply, view)


def _picture(
    reply: Compared | Profiled | Roofline | Planned | TreeShown | Cost, view: View
) -> RenderableType:
    from agentkernel.cli.rendering import accounts
    from agentkernel.cli.rendering.family import candidate_tree
    from agentkernel.cli.rendering.roofline import roofline

    match reply:
        case Compared():
            return accounts.compared(reply, view)
        case Profiled():
            return accounts.profiled(reply, view)
        case Planned():
            return accounts.planned(reply, view)
        case Cost():
            return accounts.cost(reply, view)
        case TreeShown():
            return candidate_tree(reply.tree, view, reply.target)
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


__all__ = ["place_words", "render"]
