"""`agentkernel knowledge add`, `import` and `export`: how do entries come and go?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.knowledge_options import (
    Chroma,
    EmbedderName,
    Kinds,
    Licences,
    VerifiedStates,
    Where,
)
from agentkernel.cli.options import AsJson, ConfigFile, Overrides

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentkernel.domain.knowledge import Entry
    from agentkernel.knowledge.truth import Truth
    from agentkernel.knowledge.truth_types import Put

OWN_ID_DIGITS = 12
NO_LICENCE = "not stated"
FOREIGN = "imported: "
"""How the source of an entry begins whose verification is somebody else's word."""
ProblemFile = Annotated[Path, typer.Argument(metavar="PROBLEM", help="PyTorch file. Not run.")]
AnswerFile = Annotated[Path, typer.Option("--answer", help="Its Triton code. Not run.")]
Title = Annotated[str | None, typer.Option("--title", help="One line; made from the code.")]
OwnLicence = Annotated[str, typer.Option("--licence", help="Of both files: Apache-2.0.")]
Source = Annotated[str | None, typer.Option("--source", help="Where it is from; the file's name.")]
ExportFile = Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; gzip for .gz.")]


def add(
    problem: ProblemFile,
    answer: AnswerFile,
    title: Title = None,
    licence: OwnLicence = NO_LICENCE,
    source: Source = None,
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a pair of your own: a PyTorch file and its Triton code, read and never run."""
    from agentkernel.cli.knowledge_options import opened_base, place_of
    from agentkernel.cli.knowledge_progress import catching_up
    from agentkernel.cli.output import console, print_json

    entry = own_pair(problem, answer, title, licence, source)
    with opened_base(place_of(where, chroma, embedder, overrides, config)) as base:
        put = base.truth.put([entry])
        with catching_up(silent=as_json) as progress:
            base.refresh(progress)
    state = "added" if put.added else "changed" if put.changed else "known already"
    if as_json:
        print_json({"id": entry.id, "state": state, "title": entry.title})
        return
    console().print(f"{entry.id}: {state}, not verified: {entry.title}", markup=False)


def own_pair(
    problem: Path, answer: Path, title: str | None, licence: str, source: str | None
) -> Entry:
    """The entry `own/SHA` of two files. Raises ProblemError for what is no module or no Python."""
    from datetime import UTC, datetime

    from agentkernel.cli.knowledge_search import module_text, read_text
    from agentkernel.domain.base import sha256_text
    from agentkernel.errors import ProblemError
    from agentkernel.knowledge.code_structure import parsed
    from agentkernel.knowledge.kernelbook import Pair, pair_entry
    from agentkernel.knowledge.truth_types import Progress

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
            "source": source or problem.name,
            "licence": licence,
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
    from agentkernel.cli.knowledge_options import filters_of, opened_truth, place_of
    from agentkernel.cli.output import console, print_json

    filters = filters_of(kinds, licences, verified)
    with opened_truth(place_of(where, None, None, overrides, config)) as truth:
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
    """Take in an export; a verification in it is somebody else's word, and its source says so."""
    from agentkernel.cli.knowledge_options import opened_base, place_of
    from agentkernel.cli.knowledge_progress import catching_up
    from agentkernel.cli.output import console, print_json
    from agentkernel.knowledge.transfer import import_entries

    with opened_base(place_of(where, chroma, embedder, overrides, config)) as base:
        truth = base.truth
        # What the package brings is then known already, and its source stays as it is.
        base.refresh()

        def put(entries: Iterable[Entry]) -> Put:
            return truth.put(marked(entries, truth))

        found = import_entries(put, path)
        with catching_up(silent=as_json) as progress:
            base.refresh(progress)
    if as_json:
        print_json(
            {
                **found.put._asdict(),
                "expected": found.expected,
                "broken": found.broken_count,
                "first_broken": list(found.broken),
            }
        )
        return
    screen = console()
    screen.print(
        f"{found.put.added} added, {found.put.changed} changed, {found.put.same} known already, "
        f"{found.broken_count} broken lines"
    )
    for line in found.broken:
        screen.print(f"  {line}", markup=False)


def marked(entries: Iterable[Entry], truth: Truth) -> Iterator[Entry]:
    """`entries`, the source of verified ones saying that they were imported.

    What the truth has just so stays as it is: an own export brought back changes nothing.
    """
    for entry in entries:
        known = truth.get(entry.id)
        same = known is not None and known == entry.model_copy(update={"created": known.created})
        if same or entry.verified == "no" or entry.source.startswith(FOREIGN):
            yield entry
        else:
            yield entry.model_copy(update={"source": f"{FOREIGN}{entry.source}"})
