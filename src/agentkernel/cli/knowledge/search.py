"""`agentkernel knowledge search`, `show` and `stats`: query the knowledge base and read entries.

A query is words, a module or the log of an error, of which the last lines count.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rich.console import RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from agentkernel.cli.console import console, indexing_progress
from agentkernel.cli.knowledge.options import SearchFlags, ShowEntryFlags, StatsFlags
from agentkernel.cli.knowledge.place import (
    filters_of,
    match_licences,
    open_entries,
    open_knowledge,
    place_of,
    readable,
    require_if_named,
    require_knowledge,
)
from agentkernel.cli.terminal import print_json
from agentkernel.domain.errors import KnowledgeError, ProblemError, SettingError, one_line
from agentkernel.domain.knowledge import Entry, Filters, Hit, Query, Score
from agentkernel.domain.plain_text import plain, plain_line
from agentkernel.knowledge.code_structure import module_class, structure_of_code
from agentkernel.knowledge.transfer import NO_LICENCE

if TYPE_CHECKING:
    from agentkernel.knowledge.store_schema import OldVersion, Stats


PREVIEW_LINES = 8
INDENT = 3
ERROR_LINES = 30
"""An error is named at the end of a log: the last lines are asked for, the last one first."""
ERROR_CHARACTERS = 4000
LOG_BYTES = 2**20
"""The end of a log in which the line of a fix is looked for."""
STDIN = "-"


def search(flags: SearchFlags) -> None:
    """`agentkernel knowledge search`."""
    filters = filters_of(flags.kinds, flags.licences, flags.verified, flags.arch)
    log = "" if flags.error is None else error_text(flags.error)
    query = query_of(
        readable(" ".join(flags.words or ())), flags.module, log, filters, flags.limit, flags.tokens
    )
    place = require_if_named(place_of(flags.knowledge))
    with open_knowledge(place) as base:
        with indexing_progress(silent=flags.as_json) as progress:
            base.refresh(progress, wait=False)
        hits = base.search(query.evolve(filters=match_licences(filters, base.truth)))
    if flags.as_json:
        print_json({"hits": [hit.model_dump(mode="json") for hit in hits]})
        return
    screen = console()
    for rank, hit in enumerate(hits, start=1):
        for part in hit_lines(rank, hit):
            screen.print(part, markup=False)
    if not hits:
        screen.print("Nothing found. Next: fewer or other words, or fewer filters.")


def query_of(
    words: str,
    module: Path | None,
    log: str,
    filters: Filters,
    limit: int,
    tokens: int | None,
) -> Query:
    """The question that the flags ask; `log` is the text of an error.

    Raises SettingError for no question, ProblemError for a file without a module.
    """
    end = last_lines(log)
    code = "" if module is None else module_text(module)
    if not (words.strip() or code or end):
        raise SettingError(
            "search got nothing to look for. Expected WORDS, --module FILE or --error FILE. "
            "Next: agentkernel knowledge search softmax over rows"
        )
    return Query(
        text="\n".join(part for part in (words, end, code) if part.strip()),
        # The first words count most, so its end leads; a fix's own line is found in the whole.
        words="\n".join(part for part in (words, end, log) if part.strip()),
        structure=structure_of_code(code) if code else None,
        filters=filters,
        limit=limit,
        tokens=tokens,
    )


def module_text(path: Path) -> str:
    """The text of a file that holds a module class, read and never run. Raises ProblemError."""
    text = read_text(path)
    if module_class(text) is None:
        raise ProblemError(
            f"No module in {str(path)!r}. Expected Python with a class that has a forward. "
            "Next: name the file of the module."
        )
    return text


def read_text(path: Path) -> str:
    """The text of a UTF-8 file. Raises ProblemError where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else one_line(error, 80)
        raise ProblemError(
            f"Cannot read {str(path)!r}: {what}. Expected a text file. Next: check the path."
        ) from error


def error_text(where: str) -> str:
    """The last `LOG_BYTES` of a file, or of stdin for "-"; what is no UTF-8 is replaced.

    Raises ProblemError where there is no such file.
    """

    try:
        if where == STDIN:
            log = _end_of(sys.stdin.buffer)
        else:
            with Path(where).open("rb") as file:
                log = _end_of(file)
    except OSError as error:
        raise ProblemError(
            f"Cannot read {where!r}: {error.strerror}. Expected the file of a log, "
            "or - for stdin. Next: check the path."
        ) from error
    return log.decode("utf-8", "replace")


def _end_of(file: BinaryIO) -> bytes:
    end = b""
    while block := file.read(LOG_BYTES):
        end = (end + block)[-LOG_BYTES:]
    return end


def last_lines(text: str) -> str:
    """The last `ERROR_LINES` lines that are not empty, the last one first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(reversed(lines[-ERROR_LINES:]))[:ERROR_CHARACTERS]


def hit_lines(rank: int, hit: Hit) -> list[RenderableType]:
    """A hit for the screen: what it is, where it comes from, why it is here, how it begins."""

    entry = hit.entry
    facts = (entry.id, entry.kind, entry.source, licence_words(entry), verified_words(entry))
    parts: list[RenderableType] = [
        Text(" | ".join(plain_line(fact) for fact in facts if fact)),
        Text(score_words(hit.score)),
        code_or_text(entry, preview(entry)),
    ]
    return [
        Text(f"{rank}. {plain_line(entry.title)}", style="bold"),
        *(Padding(part, (0, 0, 0, INDENT), expand=False) for part in parts),
        "",
    ]


def verified_words(entry: Entry) -> str:
    """For people: where the answer was seen to be right. Notes and fixes have no such state."""
    if not entry.problem:
        return ""
    by = f", triton {entry.triton}" if entry.triton else ""
    return {
        "gpu": f"verified on a GPU{by}",
        "interpreter": f"verified in the interpreter{by}",
        "no": "not verified",
    }[entry.verified]


def score_words(score: Score) -> str:
    """The ranks in the lists, and what was made of them."""
    ranks = (
        ("dense", score.dense_rank),
        ("lexical", score.lexical_rank),
        ("structural", score.structural_rank),
    )
    named = ", ".join(f"{name} {'-' if rank is None else rank}" for name, rank in ranks)
    return f"score {score.fused:.4f} (ranks: {named})"


def preview(entry: Entry) -> str:
    """The first lines of the answer; of code from the first kernel on."""
    lines = [line for line in entry.answer.splitlines() if line.strip()]
    kernels = (place for place, line in enumerate(lines) if line.startswith("@triton"))
    first = next(kernels, 0) if entry.problem else 0
    return "\n".join(lines[first : first + PREVIEW_LINES])


def show_entry(flags: ShowEntryFlags) -> None:
    """`agentkernel knowledge show`."""
    entry_id = readable(flags.entry_id)
    with open_entries(require_knowledge(place_of(flags.knowledge))) as truth:
        entry = truth.get(entry_id, superseded=True)
        current = truth.get(entry_id) is not None
        past = truth.history(entry_id) if flags.history else ()
    if entry is None:
        raise KnowledgeError(
            f"No entry {entry_id!r}. Expected an id such as 'notes/hopper' or 'kernelbook/17'. "
            "Next: 'agentkernel knowledge search WORDS' shows ids, 'knowledge build' makes them."
        )
    if flags.as_json:
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


def stats(flags: StatsFlags) -> None:
    """`agentkernel knowledge stats`."""
    with open_entries(require_knowledge(place_of(flags.knowledge))) as truth:
        found = truth.stats()
        path = truth.path
    if flags.as_json:
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

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _facts(entry, current=current):
        table.add_row(name, Text(plain_line(value)))
    parts: list[RenderableType] = [table, ""]
    if entry.problem:
        parts += ["problem", code_or_text(entry, entry.problem), "", "answer"]
    parts.append(code_or_text(entry, entry.answer))
    return parts


def _facts(entry: Entry, *, current: bool) -> list[tuple[str, str]]:
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

    text = plain(text)
    if entry.problem and console().is_terminal:
        return Syntax(text, "python", background_color="default", word_wrap=True)
    return Text(text)


def licence_words(entry: Entry) -> str:
    """For people: the licence, or that nobody named one."""
    return entry.licence.strip() or NO_LICENCE


def size_words(size_bytes: int) -> str:
    """Bytes for people."""
    if size_bytes < 1e6:
        return f"{size_bytes / 1e3:.0f} kB"
    return f"{size_bytes / 1e6:.1f} MB"
