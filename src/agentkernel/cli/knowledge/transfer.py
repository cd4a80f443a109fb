"""`agentkernel knowledge add`, `import`, `export` and `import-kernelbook`: entries in and out.

Files are read and never executed, and an import keeps its sources. An export has one JSON
object a line. The import of KernelBook shards resumes after a kill; only one import of pairs
runs at a time, as each compares its rows with the store as it was at the start.
"""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.cli.console import ShowProgress, console, indexing_progress, progress_bar
from agentkernel.cli.knowledge.options import (
    AddFlags,
    ExportFlags,
    ImportFlags,
    ImportKernelbookFlags,
)
from agentkernel.cli.knowledge.place import (
    filters_of,
    licence_name,
    match_licences,
    open_entries,
    open_knowledge,
    place_of,
    print_to_stderr,
    readable,
    require_knowledge,
)
from agentkernel.cli.knowledge.search import module_text, read_text
from agentkernel.cli.terminal import print_json
from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import KnowledgeError, ProblemError, SettingError
from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.domain.plain_text import plain_line
from agentkernel.knowledge import kernelbook
from agentkernel.knowledge.code_structure import parsed
from agentkernel.knowledge.kernelbook import (
    PERMISSIVE,
    ImportReport,
    LicenceRule,
    Pair,
    pair_entry,
)
from agentkernel.knowledge.pairs import NearDuplicates, shards_of
from agentkernel.knowledge.store_schema import Progress, writing
from agentkernel.knowledge.transfer import NO_LICENCE, ImportCounts, Refusal
from agentkernel.storage.files import open_append

if TYPE_CHECKING:
    from agentkernel.knowledge.store import KnowledgeStore


OWN_ID_DIGITS = 12
NAMED_REFUSED = 5
"""How many refused ids are named for each reason; all are counted."""


def add(flags: AddFlags) -> None:
    """`agentkernel knowledge add`."""
    licence = None if flags.licence is None else licence_name("--licence", flags.licence)
    entry = own_pair(flags.problem, flags.answer, flags.title, licence, flags.source)
    with open_knowledge(place_of(flags.knowledge)) as base:
        put = base.truth.put([entry])
        with indexing_progress(silent=flags.as_json) as progress:
            base.refresh(progress)
    state = "added" if put.added else "changed" if put.changed else "known already"
    if flags.as_json:
        print_json({"id": entry.id, "state": state, "title": entry.title})
        return
    line = f"{entry.id}: {state}, not verified: {entry.title}"
    console().print(plain_line(line), markup=False)


def own_pair(
    problem: Path, answer: Path, title: str | None, licence: str | None, source: str | None
) -> Entry:
    """The entry `own/SHA` of two files. Raises ProblemError for what is no module or no Python."""

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
    return entry.evolve(
        id=f"own/{digest}",
        title=title or entry.title,
        passages=(title, *entry.passages) if title else entry.passages,
        source=readable(source or problem.name),
        licence=NO_LICENCE if licence is None else licence,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def export_file(flags: ExportFlags) -> None:
    """`agentkernel knowledge export`."""
    filters = filters_of(flags.kinds, flags.licences, flags.verified)
    with open_entries(require_knowledge(place_of(flags.knowledge))) as truth:
        filters = match_licences(filters, truth)
        if next(truth.select(filters), None) is None:
            raise KnowledgeError(
                f"Nothing to export to {str(flags.path)!r}: no entry of {truth.count()} is let "
                "through. Expected at least one. Next: fewer filters; 'agentkernel knowledge "
                "stats' counts."
            )
        count = truth.export(flags.path, filters)
    if flags.as_json:
        print_json({"entries": count, "file": str(flags.path)})
        return
    console().print(f"{count} entries in {flags.path}", markup=False)


def import_file(flags: ImportFlags) -> None:
    """`agentkernel knowledge import`."""
    with open_knowledge(place_of(flags.knowledge)) as base:
        # What the package brings is then known, and nothing foreign passes for it.
        base.refresh()
        taken = base.import_(flags.path)
        with indexing_progress(silent=flags.as_json) as progress:
            base.refresh(progress)
    found = taken.found
    if flags.as_json:
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


DONE = "done"


def import_kernelbook(flags: ImportKernelbookFlags) -> None:
    """`agentkernel knowledge import-kernelbook`."""
    if flags.permitted and flags.allow_any_licence:
        raise SettingError(
            f"--licence {flags.permitted[0]!r} and --allow-any-licence exclude each other. "
            "Expected one of them. Next: leave one out."
        )
    permitted = None if flags.allow_any_licence else frozenset(flags.permitted or PERMISSIVE)
    rule = LicenceRule(permitted, flags.licence_if_missing)
    with open_knowledge(place_of(flags.knowledge)) as base:
        with import_lock(base.truth), progress_bar("rows", silent=flags.as_json) as show:
            found = import_shards(base.truth, flags.path, rule, show)
        with indexing_progress(silent=flags.as_json) as progress:
            base.refresh(progress)
        total = base.truth.count("pair")
    if flags.as_json:
        print_json({**found.model_dump(mode="json"), "pairs": total})
        return
    screen = console()
    for line in (*imported_lines(found), f"{total} pairs in all"):
        screen.print(line, markup=False)


@contextmanager
def import_lock(truth: KnowledgeStore) -> Iterator[None]:
    """Be the only import of pairs into `truth`, after waiting for another one: each compares its
    rows with what was there when it began, so two at once would keep near copies of each other."""
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
    truth: KnowledgeStore, path: Path, rule: LicenceRule, show: ShowProgress
) -> ImportReport:
    """Import each shard from where it was left, with its progress in the truth beside its pairs.

    The progress of a shard is kept under its resolved path and the licences that were asked for:
    with others, its rows are read again, and those that are there are duplicates. Raises
    KnowledgeError where not one of the rows is a pair, and what `import_pairs` raises.
    """
    names = sorted(rule.permitted) if rule.permitted else rule.permitted
    rule_hash = sha256_text(f"{rule.if_missing}\0{names}")[:8]
    total = kernelbook.ImportReport()
    seen: NearDuplicates | None = None
    some = False
    for shard in shards_of(path).values():
        source = f"{shard.resolve()}#{rule_hash}#{shard.stat().st_size}"
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
            rule,
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
    return entry if entry.licence else entry.evolve(licence=NO_LICENCE)


def merged_report(one: ImportReport, other: ImportReport) -> ImportReport:
    """Both together; the place reached is the other's."""
    refused = Counter(one.licences_refused) + Counter(other.licences_refused)
    return other.evolve(
        read=one.read + other.read,
        added=one.added + other.added,
        duplicates=one.duplicates + other.duplicates,
        refused_licence=one.refused_licence + other.refused_licence,
        licences_refused=dict(refused),
        broken=one.broken + other.broken,
        first_broken=(*one.first_broken, *other.first_broken)[:20],
        seconds=one.seconds + other.seconds,
    )


def imported_lines(found: ImportReport) -> list[str]:
    """How many rows came in, and why the others did not."""
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
