"""`agentkernel knowledge add`, `import` and `export`: how do entries come and go?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.knowledge.knowledge_options import (
    Chroma,
    EmbedderName,
    Kinds,
    Licences,
    VerifiedStates,
    Where,
)
from agentkernel.cli.options import AsJson, ConfigFile, Overrides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkernel.domain.knowledge import Entry
    from agentkernel.knowledge.transfer import ImportCounts, Refusal

OWN_ID_DIGITS = 12
NAMED_REFUSED = 5
"""How many refused ids are named for each reason; all are counted."""
ProblemFile = Annotated[Path, typer.Argument(metavar="PROBLEM", help="PyTorch file. Not run.")]
AnswerFile = Annotated[Path, typer.Option("--answer", help="Its Triton code. Not run.")]
Title = Annotated[str | None, typer.Option("--title", help="One line; made from the code.")]
OwnLicence = Annotated[
    str | None, typer.Option("--licence", help="Of both files: Apache-2.0; not stated.")
]
Source = Annotated[str | None, typer.Option("--source", help="Where it is from; the file's name.")]
ExportFile = Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; gzip for .gz.")]


def add(
    problem: ProblemFile,
    answer: AnswerFile,
    title: Title = None,
    licence: OwnLicence = None,
    source: Source = None,
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a pair of your own: a PyTorch file and its Triton code, read and never run."""
    from agentkernel.cli.knowledge.knowledge_options import licence_name, open_knowledge, place_of
    from agentkernel.cli.knowledge_progress import indexing_progress
    from agentkernel.cli.output import console, print_json
    from agentkernel.domain.plain_text import plain_line

    licence = None if licence is None else licence_name("--licence", licence)
    entry = own_pair(problem, answer, title, licence, source)
    with open_knowledge(place_of(where, chroma, embedder, overrides, config)) as base:
        put = base.truth.put([entry])
        with indexing_progress(silent=as_json) as progress:
            base.refresh(progress)
    state = "added" if put.added else "changed" if put.changed else "known already"
    if as_json:
        print_json({"id": entry.id, "state": state, "title": entry.title})
        return
    line = f"{entry.id}: {state}, not verified: {entry.title}"
    console().print(plain_line(line), markup=False)


def own_pair(
    problem: Path, answer: Path, title: str | None, licence: str | None, source: str | None
) -> Entry:
    """The entry `own/SHA` of two files. Raises ProblemError for what is no module or no Python."""
    from datetime import UTC, datetime

    from agentkernel.cli.knowledge.knowledge_search import module_text, read_text
    from agentkernel.cli.knowledge.knowledge_text import readable
    from agentkernel.domain.base import sha256_text
    from agentkernel.domain.errors import ProblemError
    from agentkernel.knowledge.code_structure import parsed
    from agentkernel.knowledge.kernelbook import Pair, pair_entry
    from agentkernel.knowledge.transfer import NO_LICENCE
    from agentkernel.knowledge.truth_types import Progress

    title = None if title is None else readable(title)
    python_code, triton_code = module_text(problem), read_text(answer)
    if not triton_code.strip() or parsed(triton_code) is None:
        raise ProblemError(
            f"No Python in {str(answer)!r}. Expected the Triton code of {problem.name}. "
            "Next: name the file that answers the problem."
        )
    digest = sha256_text("\0".join((python_code, triton_code)))[:OWN_ID_DIGITS]
    pair = Pair(Progress(problem.name, 1), digest, python_code, triton_code)
    entry = pair_entry(pair)
    return entry.model_copy(
        update={
            "id": f"own/{digest}",
            "title": title or entry.title,
            "passages": (title, *entry.passages) if title else entry.passages,
            "source": readable(source or problem.name),
            "licence": NO_LICENCE if licence is None else licence,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )


def export_file(
    path: ExportFile,
    kinds: Kinds = None,
    licences: Licences = None,
    verified: VerifiedStates = None,
    where: Where = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Write the entries into a file, a line of JSON each, to bring them to another machine."""
    from agentkernel.cli.knowledge.knowledge_options import (
        filters_of,
        match_licences,
        open_entries,
        place_of,
        require_knowledge,
    )
    from agentkernel.cli.output import console, print_json
    from agentkernel.domain.errors import KnowledgeError

    filters = filters_of(kinds, licences, verified)
    with open_entries(require_knowledge(place_of(where, None, None, overrides, config))) as truth:
        filters = match_licences(filters, truth)
        if next(truth.select(filters), None) is None:
            raise KnowledgeError(
                f"Nothing to export to {str(path)!r}: no entry of {truth.count()} is let through. "
                "Expected at least one. Next: fewer filters; 'agentkernel knowledge stats' counts."
            )
        count = truth.export(path, filters)
    if as_json:
        print_json({"entries": count, "file": str(path)})
        return
    console().print(f"{count} entries in {path}", markup=False)


def import_file(
    path: ExportFile,
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Take in an export; all of it is somebody else's word, and its sources say so."""
    from agentkernel.cli.knowledge.knowledge_options import open_knowledge, place_of
    from agentkernel.cli.knowledge_progress import indexing_progress
    from agentkernel.cli.output import console, print_json

    with open_knowledge(place_of(where, chroma, embedder, overrides, config)) as base:
        # What the package brings is then known, and nothing foreign passes for it.
        base.refresh()
        taken = base.import_(path)
        with indexing_progress(silent=as_json) as progress:
            base.refresh(progress)
    found = taken.found
    if as_json:
        print_json(
            {
                **found.put._asdict(),
                "expected": found.expected,
                "missing": taken.missing,
                "broken": found.broken_count,
                "first_broken": list(found.broken),
                "refused": by_reason(taken.refused),
            }
        )
        return
    screen = console()
    for line in taken_lines(taken):
        screen.print(line, markup=False)


def taken_lines(taken: ImportCounts) -> list[str]:
    """What came in, what is missing, and what was left out and why."""
    from agentkernel.domain.plain_text import plain_line

    found = taken.found
    lines = [
        f"{found.put.added} added, {found.put.changed} changed, {found.put.same} known already, "
        f"{len(taken.refused)} refused, {found.broken_count} broken lines"
    ]
    if taken.missing:
        lines.append(
            f"{taken.missing} of {found.expected} are missing: the file breaks off. "
            "Next: export again, or copy the file again."
        )
    for why, names in by_reason(taken.refused).items():
        more = ", ..." if len(names) > NAMED_REFUSED else ""
        named = ", ".join(repr(name[:80]) for name in names[:NAMED_REFUSED])
        lines.append(f"  {len(names)} refused, {why}: {named}{more}")
    lines += [f"  {line}" for line in found.broken]
    return [plain_line(line) for line in lines]


def by_reason(refused: Sequence[Refusal]) -> dict[str, list[str]]:
    """The ids that were left out, for each reason."""
    reasons: dict[str, list[str]] = {}
    for item in refused:
        reasons.setdefault(item.why, []).append(item.id)
    return reasons
