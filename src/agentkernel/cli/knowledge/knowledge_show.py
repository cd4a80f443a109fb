"""`agentkernel knowledge show` and `stats`: what is in one entry, and in all of them?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.knowledge.knowledge_options import Where
from agentkernel.cli.options import AsJson, ConfigFile, Overrides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from agentkernel.domain.knowledge import Entry
    from agentkernel.knowledge.truth_types import OldVersion, Stats

EntryId = Annotated[str, typer.Argument(metavar="ID", help="As search shows it: notes/hopper.")]
WithHistory = Annotated[bool, typer.Option("--history", help="Also what it was before.")]


def show_entry(
    entry_id: EntryId,
    history: WithHistory = False,
    where: Where = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show an entry whole, also one that is found no more."""
    from agentkernel.cli.knowledge.knowledge_options import (
        open_entries,
        place_of,
        require_knowledge,
    )
    from agentkernel.cli.knowledge.knowledge_text import readable
    from agentkernel.cli.output import console, print_json
    from agentkernel.domain.errors import KnowledgeError

    entry_id = readable(entry_id)
    with open_entries(require_knowledge(place_of(where, None, None, overrides, config))) as truth:
        entry = truth.get(entry_id, superseded=True)
        current = truth.get(entry_id) is not None
        past = truth.history(entry_id) if history else ()
    if entry is None:
        raise KnowledgeError(
            f"No entry {entry_id!r}. Expected an id such as 'notes/hopper' or 'kernelbook/17'. "
            "Next: 'agentkernel knowledge search WORDS' shows ids, 'knowledge build' makes them."
        )
    if as_json:
        print_json(
            {
                "entry": entry.model_dump(mode="json"),
                "current": current,
                "history": [_past_values(item) for item in past],
            }
        )
        return
    screen = console()
    for part in (*entry_parts(entry, current=current), *history_lines(past)):
        screen.print(part, markup=False)


def stats(
    where: Where = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Count the entries by kind, licence, verification and source."""
    from agentkernel.cli.knowledge.knowledge_options import (
        open_entries,
        place_of,
        require_knowledge,
    )
    from agentkernel.cli.output import console, print_json

    with open_entries(require_knowledge(place_of(where, None, None, overrides, config))) as truth:
        found = truth.stats()
        path = truth.path
    if as_json:
        print_json({**asdict(found), "file": str(path)})
        return
    screen = console()
    screen.print(
        f"{found.current} entries, {found.superseded} superseded, {found.removed} removed, "
        f"{found.versions} older versions; {size_words(found.file_bytes)} in {path}",
        markup=False,
    )
    screen.print(stats_table(found))
    if not found.current:
        screen.print("Next: agentkernel knowledge build")


def stats_table(found: Stats) -> Table:
    """One row a kind, a licence, a state and a source."""
    from rich.table import Table
    from rich.text import Text

    from agentkernel.domain.plain_text import plain_line
    from agentkernel.knowledge.transfer import NO_LICENCE

    table = Table(box=None, pad_edge=False)
    for heading in ("by", "", "entries"):
        table.add_column(heading, justify="right" if heading == "entries" else "left")
    groups: tuple[tuple[str, Mapping[str, int]], ...] = (
        ("kind", found.by_kind),
        ("licence", found.by_licence),
        ("verified", found.by_verified),
        ("source", found.by_source),
    )
    for name, counts in groups:
        for value, count in counts.items():
            shown = value or (NO_LICENCE if counts is found.by_licence else "-")
            table.add_row(name, Text(plain_line(shown)), str(count))
            name = ""
    return table


def entry_parts(entry: Entry, *, current: bool) -> list[RenderableType]:
    """What it says of itself, its problem and its answer."""
    from rich.table import Table
    from rich.text import Text

    from agentkernel.domain.plain_text import plain_line

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _facts(entry, current=current):
        table.add_row(name, Text(plain_line(value)))
    parts: list[RenderableType] = [table, ""]
    if entry.problem:
        parts += ["problem", code_or_text(entry, entry.problem), "", "answer"]
    parts.append(code_or_text(entry, entry.answer))
    return parts


def _facts(entry: Entry, *, current: bool) -> list[tuple[str, str]]:
    from agentkernel.cli.knowledge.knowledge_search import verified_words

    gain, ops = entry.gain, entry.structure.ops if entry.structure else ()
    facts = [
        ("id", entry.id),
        ("state", "" if current else "found no more (--history says why)"),
        ("title", entry.title),
        ("summary", entry.summary),
        ("kind", entry.kind),
        ("source", entry.source),
        ("licence", licence_words(entry)),
        ("verified", verified_words(entry)),
        ("for", ", ".join(entry.architectures) or "all architectures"),
        ("ops", ", ".join(ops)),
        ("hints", ", ".join(f"{key} = {value}" for key, value in entry.hints.items())),
        ("measured", "" if gain is None else f"{gain.time_us:g} us on {gain.gpu}"),
        ("failed", "; ".join(entry.failures)),
        ("created", entry.created),
    ]
    return [(name, value) for name, value in facts if value]


def history_lines(past: Sequence[OldVersion]) -> list[str]:
    """A line for each version that is found no more."""
    from agentkernel.domain.plain_text import plain_line

    lines = (
        f"until {item.ended}: {item.entry.title} ({item.why})"
        + (f", superseded by {item.superseded_by}" if item.superseded_by else "")
        for item in past
    )
    return [plain_line(line) for line in lines]


def _past_values(past: OldVersion) -> dict[str, object]:
    return {
        "entry": past.entry.model_dump(mode="json"),
        "why": past.why,
        "superseded_by": past.superseded_by,
        "ended": past.ended,
    }


def code_or_text(entry: Entry, text: str) -> RenderableType:
    """Python in colours where a terminal shows them; plain text of notes and fixes."""
    from rich.syntax import Syntax
    from rich.text import Text

    from agentkernel.cli.output import console
    from agentkernel.domain.plain_text import plain

    text = plain(text)
    if entry.problem and console().is_terminal:
        return Syntax(text, "python", background_color="default", word_wrap=True)
    return Text(text)


def licence_words(entry: Entry) -> str:
    """For people: the licence, or that nobody named one."""
    from agentkernel.knowledge.transfer import NO_LICENCE

    return entry.licence.strip() or NO_LICENCE


def size_words(size_bytes: int) -> str:
    """Bytes for people."""
    if size_bytes < 1e6:
        return f"{size_bytes / 1e3:.0f} kB"
    return f"{size_bytes / 1e6:.1f} MB"
