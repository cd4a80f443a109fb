"""Report of a judged corpus: a JSON summary and a table for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentkernel.bench.redteam.corpus import CorpusEntry, CorpusFinding, JudgedBy, expected_gate
from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import OutputError
from agentkernel.storage.files import write_atomic

BEGIN, END = "<!-- red team: begin -->", "<!-- red team: end -->"


class SecondsSpent(Frozen):
    """Seconds of all processes together, by what they were spent on."""

    start_s: float = 0.0
    capture_s: float = 0.0
    cases_s: float = 0.0
    profile_s: float = 0.0


class CorpusSummary(Frozen):
    """A judged corpus. `skipped` names what cannot act on this machine."""

    corpus: str
    device: str
    jobs: int
    judged: int
    right: int
    unexpected: tuple[str, ...]
    skipped: tuple[str, ...]
    wall_s: float
    per_minute: float
    spent: SecondsSpent
    judge_sha256: str
    versions: Versions
    found: tuple[CorpusFinding, ...]


def summarise(
    corpus: Path,
    found: Sequence[CorpusFinding],
    skipped: Sequence[CorpusEntry],
    by: JudgedBy,
    *,
    jobs: int,
    wall_s: float,
) -> CorpusSummary:
    """Count and add up."""
    names = ("start_s", "capture_s", "cases_s", "profile_s")
    sums = {name: round(sum(getattr(item, name) for item in found), 2) for name in names}
    return CorpusSummary(
        corpus=str(corpus),
        device=by.device,
        jobs=jobs,
        judged=len(found),
        right=sum(item.right for item in found),
        unexpected=tuple(item.name for item in found if not item.right),
        skipped=tuple(entry.name for entry in skipped),
        wall_s=round(wall_s, 2),
        per_minute=round(60 * len(found) / max(wall_s, 1e-9), 1),
        spent=SecondsSpent(**sums),
        judge_sha256=by.judge_sha256,
        versions=by.versions,
        found=tuple(found),
    )


def write_table(path: Path, summary: CorpusSummary, entries: Sequence[CorpusEntry]) -> None:
    """Put the Markdown table between the markers of `path`; a new file gets nothing else.

    Raises OutputError where the file has text and no markers, or cannot be written.
    """
    block = f"{BEGIN}\n{markdown(summary, entries)}\n{END}\n"
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise OutputError(f"Cannot read {str(path)!r}: {error}. Expected Markdown.") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if text.strip() and not (begin and end):
        raise OutputError(
            f"{str(path)!r} has text and no place for the table. Expected the lines {BEGIN} and "
            f"{END}. Next: add them, or name a new file."
        )
    write_atomic(path, f"{before}{block}{after.removeprefix(chr(10))}")


def markdown(summary: CorpusSummary, entries: Sequence[CorpusEntry]) -> str:
    """Every candidate of the corpus, also those that this machine could not try."""
    by_name = {(item.kind, item.name): item for item in summary.found}
    versions = summary.versions
    head = (
        f"{summary.right} of {summary.judged} as expected on {summary.device} (torch "
        f"{versions.torch}, triton {versions.triton}); {len(summary.skipped)} not tried there. "
        f"{summary.per_minute:g} candidates a minute in {summary.jobs} processes."
    )
    parts = [head]
    for kind, title in (("hostile", "Hostile"), ("honest", "Honest")):
        rows = [entry for entry in entries if entry.kind == kind]
        if rows:
            parts += ["", f"### {title}", "", *_rows(rows, by_name)]
    return "\n".join(parts)


def _rows(entries: Sequence[CorpusEntry], found: dict[tuple[str, str], CorpusFinding]) -> list[str]:
    lines = [
        "| candidate | what it does | problem | expected | found |",
        "|---|---|---|---|---|",
    ]
    for entry in entries:
        item = found.get((entry.kind, entry.name))
        cells = (
            f"`{entry.name}`",
            entry.title,
            f"`{entry.problem_name}`",
            expected_gate(entry),
            _outcome(item),
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def _outcome(item: CorpusFinding | None) -> str:
    if item is None:
        return "not tried"
    gate = item.gate or "undecided"
    return gate if item.right else f"**{gate}**"
