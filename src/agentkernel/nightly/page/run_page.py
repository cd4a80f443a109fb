"""What does the page of a single optimize run hold: its candidates as a lineage?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentkernel.domain.certificate import Certificate, Status
from agentkernel.domain.profile import Measurement
from agentkernel.nightly.page.content import (
    Cell,
    Column,
    Details,
    Page,
    PlotFigure,
    Row,
    Table,
    Tile,
    Tone,
    without_empty,
)
from agentkernel.nightly.page.folds import certificate_facts, verdict_words
from agentkernel.nightly.page.lineage import plain_source, source_diff
from agentkernel.nightly.page.page import plot_figure
from agentkernel.nightly.page.roofline import Dot, Plot, Roof
from agentkernel.nightly.page.wording import SHORT, error_text, interval, percent, times, us, when
from agentkernel.tools.roofline.picture import drawing_of
from agentkernel.workflows.report import HEADLINES, ReportEntry, dtypes, machine

TONES: dict[Status, Tone] = {
    "met": "good",
    "improved": "good",
    "verified": "good",
    "kept_original": "warn",
    "kept_compiled": "warn",
    "failed": "bad",
}
EDITED = "This certificate was edited after it was signed: 'agentkernel verify' says where."
CLASSES = {"candidate": "kernel", "eager": "eager", "torch.compile": "compiled"}


def run_page(
    certificate: Certificate, entries: Sequence[ReportEntry], *, edited: bool = False
) -> Page:
    """The same page as a night's: candidates in the place of models, diffs to their parents.
    `edited`: the certificate's signature does not fit it."""
    words = _caption(certificate)
    figure = _roofline(certificate, words)
    return Page(
        title=f"{certificate.problem.name}, run {certificate.run}",
        kicker=f"Run {certificate.run}: {certificate.problem.name}",
        headline=HEADLINES[certificate.status],
        tone=TONES[certificate.status],
        facts=(
            *((EDITED,) if edited else ()),
            certificate.reason,
            words,
            when(certificate.created),
        ),
        tiles=tuple(_tiles(certificate)),
        groups=(),
        against="",
        tables=(_table(certificate, entries, words),),
        figures=(figure,) if figure is not None else (),
        bars=(),
        bars_caption="",
        folds_title="Sources",
        folds=tuple(_fold(entry, entries, certificate) for entry in entries),
        folds_note="",
        versions=tuple(
            (name, str(value) if value is not None else "none")
            for name, value in certificate.versions.model_dump().items()
        ),
        lost=(),
    )


def _caption(certificate: Certificate) -> str:
    versions = certificate.versions
    where = machine(certificate)
    kinds = ", ".join(dtypes(certificate)) or "no tensor inputs"
    return (
        f"{where[0].upper()}{where[1:]}; {kinds}; torch {versions.torch}, triton {versions.triton}"
    )


def _tiles(certificate: Certificate) -> Iterator[Tile]:
    profile = certificate.profile
    if profile is None:
        return
    if not profile.measurements:
        yield Tile("time", f"≈ {us(profile.estimate.time_us)}", estimated=True)
        if profile.baseline_estimate is not None:
            eager = profile.baseline_estimate.time_us
            yield Tile("eager", f"≈ {us(eager)}", estimated=True)
        return
    primary = profile.measurements[0]
    for name, ratio in (
        ("over eager", primary.vs_eager),
        ("over torch.compile", primary.vs_compile),
    ):
        if ratio is not None:
            tone: Tone = "good" if ratio.call == "faster" else ""
            yield Tile(name, times(ratio.value), interval(ratio), tone)
    yield Tile("time", us(primary.candidate.median_us), f"eager {us(primary.eager.median_us)}")
    yield Tile("of the roofline", percent(primary.roofline_fraction))


def _table(certificate: Certificate, entries: Sequence[ReportEntry], words: str) -> Table:
    columns = (
        Column("candidate", "candidate"),
        Column("gate", "gate"),
        Column("round", "round", number=True),
        Column("parent", "parent"),
        Column("error", "error", number=True),
        Column("speedup", "over eager", number=True),
        Column("compile", "over torch.compile", number=True),
        Column("time", "time", number=True),
        Column("roofline", "of the roofline", number=True),
        Column("estimated-time", "time", number=True, estimated=True),
    )
    rows = tuple(
        Row(f"candidate-{entry.candidate.id}", _cells(entry, certificate.candidate_sha256))
        for entry in entries
    )
    return without_empty(Table("candidates", "Candidates", words, "candidate", columns, rows))


def _cells(entry: ReportEntry, handed_over: str | None) -> tuple[Cell | None, ...]:
    candidate, verdict, profile = entry.candidate, entry.verdict, entry.profile
    primary = profile.measurements[0] if profile and profile.measurements else None
    strategy = f"{candidate.strategy or '–'}, by {candidate.coder}"
    if candidate.sha256 == handed_over:
        strategy += "; handed over"
    parent = candidate.parent[:SHORT] if candidate.parent else ""
    error = None
    if verdict is not None and verdict.worst_error is not None:
        beside = f"eager {error_text(verdict.worst_eager_error)}"
        if verdict.margin_text:
            beside += f"; {verdict.margin_text}"
        error = Cell(error_text(verdict.worst_error), verdict.worst_error, beside)
    return (
        Cell(candidate.id, candidate.id, strategy, href=f"#kernel-{candidate.id}"),
        _gate(entry),
        Cell(str(candidate.round), candidate.round),
        Cell(parent, parent, href=f"#kernel-{parent}") if parent else None,
        error,
        *(_measured(primary) if primary is not None else (None,) * 4),
        Cell(f"≈ {us(profile.estimate.time_us)}", profile.estimate.time_us) if profile else None,
    )


def _measured(primary: Measurement) -> tuple[Cell | None, ...]:
    ratio = primary.vs_compile
    return (
        Cell(times(primary.vs_eager.value), primary.vs_eager.value, interval(primary.vs_eager)),
        Cell(times(ratio.value), ratio.value, interval(ratio)) if ratio is not None else None,
        Cell(us(primary.candidate.median_us), primary.candidate.median_us),
        Cell(percent(primary.roofline_fraction), primary.roofline_fraction),
    )


def _gate(entry: ReportEntry) -> Cell:
    verdict = entry.verdict
    if verdict is None:
        return Cell("not judged", "not judged", entry.aside, "quiet")
    if not verdict.accepted:
        return Cell(f"stopped at {verdict.gate}", verdict.gate, tone="bad")
    how = "interpreted" if verdict.interpreted else ""
    return Cell("accepted", "accepted", how, "good")


def _fold(entry: ReportEntry, entries: Sequence[ReportEntry], certificate: Certificate) -> Details:
    candidate = entry.candidate
    known = {item.candidate.sha256: item.candidate for item in entries}
    parent = known.get(candidate.parent or "")
    chain = [candidate]
    while (before := known.get(chain[0].parent or "")) is not None and before not in chain:
        chain.insert(0, before)
    gate = _gate(entry)
    own = candidate.sha256 == certificate.candidate_sha256
    facts = [
        ("candidate", candidate.sha256),
        ("drafted by", f"{candidate.coder}, round {candidate.round}: {candidate.strategy or '–'}"),
    ]
    if entry.verdict is not None and not own:
        facts.append(("verdict", verdict_words(entry.verdict)))
    facts += [] if own else list(entry.refused)
    facts += list(certificate_facts(certificate)) if own else []
    return Details(
        id=f"kernel-{candidate.id}",
        title=f"{candidate.id} {candidate.strategy}".strip(),
        state="handed over" if own else gate.text,
        tone=gate.tone,
        facts=tuple(facts),
        chain=tuple(item.id for item in chain),
        source_title=f"Diff to its parent {parent.id}" if parent is not None else "Source",
        source=source_diff(parent.source, candidate.source)
        if parent is not None
        else plain_source(candidate.source),
        record=certificate.model_dump_json(indent=1) if own else "",
    )


def _roofline(certificate: Certificate, words: str) -> PlotFigure | None:
    plan, profile = certificate.plan, certificate.profile
    if plan is None or profile is None or not plan.analysis.memory_time_us:
        return None
    picture = drawing_of(profile, plan.analysis)
    dots = tuple(
        Dot(
            f"{item.label}: {us(item.time_us)}",
            item.intensity,
            item.tflops,
            None,
            CLASSES[item.label],
        )
        for item in picture.points
    )
    slope, peak = picture.roof.gb_per_s / 1e3, picture.roof.peak_tflops
    low = min(dot.x for dot in dots) / 2
    roof = Roof(
        f"{picture.roof.gb_per_s:,.0f} GB/s, {peak:.3g} TFLOP/s",
        ((low, low * slope), (peak / slope, peak), (max(peak / slope, low) * 1e4, peak)),
    )
    basis = "estimated" if picture.estimated else "measured"
    title = f"Roofline of {picture.roof.title} ({basis})"
    return plot_figure(
        Plot(title, "FLOP per byte", "TFLOP/s", dots, (roof,), picture.estimated), f"{words}."
    )
