"""`agentkernel knowledge import-kernelbook`: how do published pairs come in?"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.knowledge.knowledge_options import Chroma, EmbedderName, Where
from agentkernel.cli.options import AsJson, ConfigFile, Overrides
from agentkernel.storage.disk import open_append

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentkernel.cli.knowledge_progress import ShowProgress
    from agentkernel.domain.knowledge import Entry
    from agentkernel.knowledge.kernelbook import ImportReport
    from agentkernel.knowledge.near_duplicates import NearDuplicates
    from agentkernel.knowledge.truth import KnowledgeStore
    from agentkernel.knowledge.truth_types import Progress

DONE = "done"
PairsPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A parquet or JSON file, or a folder of them.")
]
Permitted = Annotated[
    list[str] | None,
    typer.Option("--licence", help="Take this licence, in place of the permissive ones. Repeat."),
]
LicenceIfMissing = Annotated[
    str, typer.Option("--licence-if-missing", help="The licence of rows that name none.")
]
AnyLicence = Annotated[
    bool, typer.Option("--allow-any-licence", help="Take every row, whatever its licence.")
]


def import_kernelbook(
    path: PairsPath,
    permitted: Permitted = None,
    licence_if_missing: LicenceIfMissing = "",
    allow_any_licence: AnyLicence = False,
    where: Where = None,
    chroma: Chroma = None,
    embedder: EmbedderName = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Take in published pairs such as KernelBook; the same call goes on after a kill."""
    from agentkernel.cli.knowledge.knowledge_options import open_knowledge, place_of
    from agentkernel.cli.knowledge_progress import indexing_progress, progress_bar
    from agentkernel.cli.output import console, print_json
    from agentkernel.domain.errors import SettingError
    from agentkernel.knowledge.kernelbook import PERMISSIVE

    if permitted and allow_any_licence:
        raise SettingError(
            f"--licence {permitted[0]!r} and --allow-any-licence exclude each other. Expected one "
            "of them. Next: leave one out."
        )
    licences = None if allow_any_licence else frozenset(permitted or PERMISSIVE)
    with open_knowledge(place_of(where, chroma, embedder, overrides, config)) as base:
        with import_lock(base.truth), progress_bar("rows", silent=as_json) as show:
            found = import_shards(base.truth, path, licences, licence_if_missing, show)
        with indexing_progress(silent=as_json) as progress:
            base.refresh(progress)
        total = base.truth.count("pair")
    if as_json:
        print_json({**found.model_dump(mode="json"), "pairs": total})
        return
    screen = console()
    for line in (*imported_lines(found), f"{total} pairs in all"):
        screen.print(line, markup=False)


@contextmanager
def import_lock(truth: KnowledgeStore) -> Iterator[None]:
    """Be the only import of pairs into `truth`, after waiting for another one: each compares its
    rows with what was there when it began, so two at once would keep near copies of each other."""
    from agentkernel.cli.knowledge.knowledge_options import print_to_stderr
    from agentkernel.knowledge.truth_schema import writing

    path = truth.path.with_name(f"{truth.path.name}.import")
    with writing(path):
        file = open_append(path)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_to_stderr("Another import goes on in this folder: this one waits for its end.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def import_shards(
    truth: KnowledgeStore,
    path: Path,
    licences: frozenset[str] | None,
    licence_if_missing: str,
    show: ShowProgress,
) -> ImportReport:
    """Import each shard from where it was left, with its progress in the truth beside its pairs.

    The progress of a shard is kept under its resolved path and the licences that were asked for:
    with others, its rows are read again, and those that are there are duplicates. Raises
    KnowledgeError where not one of the rows is a pair, and what `import_pairs` raises.
    """
    from agentkernel.domain.base import sha256_text
    from agentkernel.domain.errors import KnowledgeError
    from agentkernel.domain.knowledge import Filters
    from agentkernel.domain.plain_text import plain_line
    from agentkernel.knowledge import kernelbook
    from agentkernel.knowledge.near_duplicates import NearDuplicates
    from agentkernel.knowledge.pair_files import shards_of
    from agentkernel.knowledge.truth_types import Progress

    rule = sha256_text(f"{licence_if_missing}\0{sorted(licences) if licences else licences}")[:8]
    total = kernelbook.ImportReport()
    seen: NearDuplicates | None = None
    some = False
    for shard in shards_of(path).values():
        source = f"{shard.resolve()}#{rule}#{shard.stat().st_size}"
        at = truth.progress(source)
        if at is not None and at.state == DONE:
            some = True
            continue
        if seen is None:
            pairs = truth.select(Filters(kinds=("pair", "kernel")))
            seen = NearDuplicates.of(entry.problem for entry in pairs)

        def put(entries: Sequence[Entry], progress: Progress, source: str = source) -> None:
            truth.put(map(licensed, entries), Progress(source, progress.position))

        def held(entry_id: str) -> str | None:
            entry = truth.get(entry_id, superseded=True)
            return None if entry is None else entry.problem

        def say(report: ImportReport, before: ImportReport = total) -> None:
            so_far = merged_report(before, report)
            show(so_far.read, None, f"read, {so_far.added} added")

        found = kernelbook.import_pairs(
            shard,
            put,
            licences=licences,
            licence_if_missing=licence_if_missing,
            seen=seen,
            held=held,
            say=say,
            start_at=None if at is None else (shard.name, at.position),
        )
        begun = at is not None and at.position > 0
        sound = begun or not found.read or found.broken < found.read
        some = some or sound
        # A file of which nothing could be read is no finished one: the same call says so again.
        truth.put((), Progress(source, found.position, DONE) if sound else Progress(source, 0))
        total = merged_report(total, found)
    if total.read and not some:
        raise KnowledgeError(
            f"None of {total.read} rows in {str(path)!r} is a pair; the first: "
            f"{plain_line(total.first_broken[0])}. Expected rows with the code of a module and "
            "its Triton code. Next: name the files of such a set."
        )
    return total


def licensed(entry: Entry) -> Entry:
    """`entry`, whose licence says at least that nobody named one."""
    from agentkernel.knowledge.transfer import NO_LICENCE

    return entry if entry.licence else entry.model_copy(update={"licence": NO_LICENCE})


def merged_report(one: ImportReport, other: ImportReport) -> ImportReport:
    """Both together; the place reached is the other's."""
    from collections import Counter

    refused = Counter(one.licences_refused) + Counter(other.licences_refused)
    return other.model_copy(
        update={
            "read": one.read + other.read,
            "added": one.added + other.added,
            "duplicates": one.duplicates + other.duplicates,
            "refused_licence": one.refused_licence + other.refused_licence,
            "licences_refused": dict(refused),
            "broken": one.broken + other.broken,
            "first_broken": (*one.first_broken, *other.first_broken)[:20],
            "seconds": one.seconds + other.seconds,
        }
    )


def imported_lines(found: ImportReport) -> list[str]:
    """How many rows came in, and why the others did not."""
    from agentkernel.domain.plain_text import plain_line

    lines = [
        f"{found.read} rows read, {found.added} pairs added, {found.duplicates} near copies left "
        f"out, {found.refused_licence} refused for their licence, {found.broken} broken "
        f"({found.seconds:.0f} s)"
    ]
    if found.licences_refused:
        named = sorted(found.licences_refused.items(), key=lambda item: -item[1])[:5]
        words = ", ".join(f"{name or 'none named'} {count}" for name, count in named)
        lines.append(f"refused: {words}; --licence or --allow-any-licence takes them")
    lines += [f"  {line}" for line in found.first_broken[:3]]
    return [plain_line(line) for line in lines]
