"""What does each answer of a session look like, on a terminal and in a pipe?"""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from agentkernel.cli.pictures.page import Page, View, hanging, lines
from agentkernel.cli.pictures.plain import flat, shown_model
from agentkernel.domain.session import Place
from agentkernel.workflows.session.replies import (
    Compared,
    Cost,
    DiffOf,
    Editing,
    Ended,
    Explained,
    Found,
    Moved,
    Planned,
    Profiled,
    Puzzled,
    Ran,
    Reply,
    Roofline,
    Said,
    Source,
    TreeShown,
    Wrote,
)

LEAST_WIDTH = 20


def render(reply: Reply, width: int, colour: bool, unicode: bool = True) -> RenderableType:
    """`reply` for a screen of `width` columns (at least 20).

    Without `colour` nothing but text is sent, without `unicode` nothing but ASCII. Symbols and
    words carry the meaning, and whatever is no visible sign is shown escaped.
    """
    view = View(max(LEAST_WIDTH, width), colour, unicode)
    return Page(_drawn(shown_model(reply, unicode), view), view)


def _drawn(reply: Reply, view: View) -> RenderableType:
    """Pictures are imported where they are wanted: the first prompt does not wait for them."""
    match reply:
        case Said():
            return said(reply)
        case Puzzled():
            return puzzled(reply, view)
        case Ran():
            return ran(reply, view)
        case Moved():
            return moved(reply, view)
        case Wrote():
            return Group(
                *([lines(reply.text)] if reply.text else []),
                *(hanging("  ", path, view) for path in reply.paths),
            )
        case Editing():
            return lines(editing_words(reply))
        case Ended():
            return lines(reply.text) if reply.text else Group()
        case Found():
            return found(reply)
        case Source() | DiffOf() | Explained():
            return _code(reply, view)
    return _picture(reply, view)


def _code(reply: Source | DiffOf | Explained, view: View) -> RenderableType:
    from agentkernel.cli.pictures import code

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
    from agentkernel.cli.pictures import accounts
    from agentkernel.cli.pictures.family import family
    from agentkernel.cli.pictures.roofline import roofline

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
            return family(reply.tree, view, reply.target)
        case Roofline():
            return roofline(reply, view)


def said(reply: Said) -> RenderableType:
    """Plain lines; ! before what could not be done."""
    return lines(reply.text) if reply.ok else lines(f"! {reply.text}", style="yellow")


def puzzled(reply: Puzzled, view: View) -> RenderableType:
    """What was not understood, the readings it may have, the nearest sentences."""
    parts: list[RenderableType] = [lines(f"? {reply.text}", style="yellow")]
    if reply.options:
        parts.append(lines("Which one?"))
        parts += [
            hanging(f"  {number}. ", option, view)
            for number, option in enumerate(reply.options, start=1)
        ]
    if reply.nearest:
        parts.append(lines("Nearest:"))
        parts += [hanging("  - ", flat(item.example), view) for item in reply.nearest]
    return Group(*parts)


def ran(reply: Ran, view: View) -> RenderableType:
    """What changed, the new candidates, and the run's figures."""
    made = ", ".join(f"c{number}" for number in reply.made) or "no candidate"
    title = f"step {reply.step}: {made}; now at {place_words(reply.place)}"
    parts: list[RenderableType] = [lines(Text(title, style="bold"))]
    if reply.text:
        parts.append(lines(reply.text))
    if reply.result is not None:
        parts += ["", *_result(reply, view)]
    return Group(*parts)


def _result(reply: Ran, view: View) -> list[RenderableType]:
    from agentkernel.cli.panel import facts as figures
    from agentkernel.cli.panel import files

    if reply.result is None:
        return []
    table = figures(reply.result)
    for column in table.columns:
        column.overflow = "fold"
    paths = files(reply.result)
    paths.overflow = "fold"
    return [table, paths]


def moved(reply: Moved, view: View) -> RenderableType:
    """Where the session stands now, and with which settings."""
    head = view.sign("→ ", "-> ")
    parts: list[RenderableType] = [
        hanging(head, f"now at {place_words(reply.place)}", view, style="bold")
    ]
    if reply.text:
        parts.append(lines(reply.text))
    return Group(*parts)


def place_words(place: Place) -> str:
    """`c3 on branch 2, with goals.precision = tf32`."""
    at = "the module" if place.candidate is None else f"c{place.candidate}"
    branch = f" on branch {place.branch}" if place.branch != 1 else ""
    changes = ", ".join(f"{key} = {value}" for key, value in place.changes.items())
    return f"{at}{branch}{f', with {changes}' if changes else ''}"


def editing_words(reply: Editing) -> str:
    """What is to be edited, and where."""
    what = "the module" if reply.number is None else f"c{reply.number}"
    count = len(reply.text.splitlines())
    where = "" if reply.line is None else f", at line {reply.line}"
    return f"Editing {what} ({count} lines){where}."


def found(reply: Found) -> RenderableType:
    """Hits as `agentkernel knowledge search` shows them."""
    from agentkernel.cli.knowledge_search import hit_lines

    if not reply.hits:
        return lines(f"Nothing found on {flat(reply.query)!r}. Next: fewer or other words.")
    return Group(
        *(part for rank, hit in enumerate(reply.hits, start=1) for part in hit_lines(rank, hit))
    )


__all__ = ["place_words", "render"]
