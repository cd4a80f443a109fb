"""HTML pages of a nightly run and of a single optimize run, each one self-contained file."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

import jinja2
from markupsafe import Markup

from agentkernel.domain.certificate import Certificate, Status
from agentkernel.domain.formatting import (
    count,
    error_text,
    interval,
    percent,
    ratio_text,
    span,
    times,
    us,
    when,
)
from agentkernel.domain.nightly import Comparison, ModelRow, NightlyRun, RegionRow
from agentkernel.domain.profile import Measurement
from agentkernel.domain.region import Basis, Kernel
from agentkernel.nightly.page.charts import region_figure, roofline_figure, trend_figure
from agentkernel.nightly.page.comparison import change_groups, headline, headline_tone
from agentkernel.nightly.page.elements import (
    Bar,
    Cell,
    ChangeLine,
    Column,
    Details,
    Page,
    PlotFigure,
    Row,
    Table,
    Tile,
    Tone,
    lineages,
    source_lines,
)
from agentkernel.nightly.page.figures import (
    SHORT,
    caption,
    is_faster,
    is_replaced,
    lost_text,
    mean_ratio,
    night_dtypes,
    region_interval,
    seconds_per_percent,
    speedup,
    speedup_ratio,
)
from agentkernel.nightly.page.tables import (
    MOST_KERNELS,
    MOST_ROWS,
    STATUS_TONES,
    certificate_facts,
    kernel_details,
    model_table,
    region_order,
    region_table,
    verdict_words,
)
from agentkernel.tools.charts.svg import chart_svg
from agentkernel.tools.roofline.chart import drawing_of, roofline_chart
from agentkernel.workflows.report import HEADLINES, ReportEntry, dtypes, machine

SHOWN = 12
"""Regions with a bar of their own."""


def budget_bars(night: NightlyRun) -> tuple[Bar, ...]:
    """The regions that took the most seconds, by their number in the table, and the rest together;
    the longest bar is full."""
    rows = sorted(night.regions, key=lambda row: (-row.spent_s, row.signature))
    spent = [row for row in rows if row.spent_s > 0]
    total = sum(row.spent_s for row in spent)
    if not total:
        return ()
    rest = sum(row.spent_s for row in spent[SHOWN:])
    most = max(spent[0].spent_s, rest)
    places = {row.signature: place for place, row in enumerate(region_order(night), 1)}
    bars = [
        Bar(
            label=f"{places[row.signature]}. {row.name}",
            share=row.spent_s / most,
            text=f"{span(row.spent_s)}, {percent(row.spent_s / total)}: {_came_out(row)}",
            tone=STATUS_TONES[row.status],
            href=f"#region-{row.signature}",
        )
        for row in spent[:SHOWN]
    ]
    if rest:
        words = f"{span(rest)}, {percent(rest / total)}"
        bars.append(Bar(count(len(spent) - SHOWN, "more region"), rest / most, words, "quiet"))
    return tuple(bars)


def budget_words(night: NightlyRun) -> str:
    """What there was, what was used, by how many, and the price of a percent."""
    limit = f" of {span(night.budget_s)}" if night.budget_s is not None else ""
    workers = count(night.workers, "worker")
    spent = sum(row.spent_s for row in night.regions)
    parts = [
        f"Wall time {span(night.wall_s)}{limit} on {workers}",
        f"jobs {span(night.gpu_s)}, regions {span(spent)} of it",
    ]
    price = seconds_per_percent(night)
    if price is not None:
        mark = "" if night.basis == "measured" else " (estimated)"
        parts.append(f"{span(price)} of jobs for each 1% of the mean{mark}")
    return "; ".join(parts) + "."


def _came_out(row: RegionRow) -> str:
    if row.speedup is not None and row.time_us is not None:
        return f"{row.status}, {times(row.speedup)} ({region_interval(row)})".removesuffix(" ()")
    if row.time_us is not None:
        return f"{row.status}, ≈ {us(row.time_us)} for eager's ≈ {us(row.eager_us)} (estimated)"
    return row.status


BASES: tuple[Basis, ...] = ("measured", "estimated")
KNOWN_KERNEL = ("new", "reused", "retuned")
SHOWN_FASTEST = 3


def night_page(
    night: NightlyRun,
    comparison: Comparison,
    history: Sequence[NightlyRun],
    kernels: Mapping[str, Kernel],
) -> Page:
    """All of the page. `kernels` by their hash; those that are not known have no source shown."""
    chains = lineages(history, night)
    folds = kernel_details(night, kernels, chains)
    return Page(
        title=f"{night.zoo}, night {night.id}",
        kicker=f"Night {night.id} over {night.zoo}",
        headline=headline(comparison),
        tone=headline_tone(comparison),
        facts=tuple(_facts(night)),
        tiles=tuple(_tiles(night, comparison)),
        groups=change_groups(night, comparison),
        against=_against(comparison, history),
        tables=(model_table(night, comparison), region_table(night, chains)),
        figures=tuple(filter(None, _figures(night, history, kernels))),
        bars=budget_bars(night),
        bars_caption=f"{budget_words(night)} {_machine(night)}.",
        folds_title="Kernels",
        folds=folds,
        folds_note=f"The {MOST_KERNELS} kernels of the largest regions; the library has all."
        if len(folds) == MOST_KERNELS
        else "",
        versions=tuple(_versions(night)),
        lost=tuple(ChangeLine(*words) for words in lost_text(night.lost)),
    )


def render(page: Page) -> str:
    """One file that needs no network; all text is escaped, and no script but its own may run."""
    script, style = _file("night.js"), _file("night.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _template().render(
        page=page,
        script=Markup(script),  # ours: the packaged file
        style=Markup(style),
        digest=digest,
        svg=lambda *drawing: Markup(chart_svg(*drawing)),  # it escapes its own texts
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    return environment.from_string(_file("night.html.j2"))


def _file(name: str) -> str:
    return files("agentkernel.nightly.page").joinpath(name).read_text("utf-8")


def _machine(night: NightlyRun) -> str:
    return caption(night, night.basis)


def _facts(night: NightlyRun) -> Iterator[str]:
    yield _machine(night)
    end = f" to {when(night.finished)}" if night.finished else ", not finished"
    yield f"{when(night.started)}{end}"
    yield f"target {night.target}, agentkernel {night.versions.agentkernel}"


def _tiles(night: NightlyRun, comparison: Comparison) -> Iterator[Tile]:
    yield _worse(comparison)
    for basis in BASES:
        mean = mean_ratio(night.models, basis)
        if mean is not None:
            rows = [row for row in night.models if row.basis == basis]
            faster = [row for row in rows if is_faster(row)]
            over = (
                "over the faster of eager and torch.compile"
                if basis == "measured"
                else "over eager"
            )
            yield Tile(
                "geometric mean",
                times(mean.value) if basis == "measured" else f"≈ {times(mean.value)}",
                ", ".join(filter(None, (interval(mean), over))),
                "good" if mean.low > 1.01 else "",
                estimated=basis == "estimated",
            )
            yield Tile(
                "models faster",
                f"{len(faster)} of {len(rows)}",
                _fastest(faster, basis) if faster else "all keep a baseline",
                "good" if faster else "",
                estimated=basis == "estimated",
            )
    have = sum(row.status in KNOWN_KERNEL or is_replaced(row) for row in night.regions)
    new = sum(row.status in ("new", "retuned") for row in night.regions)
    yield Tile("regions with a kernel", f"{have} of {len(night.regions)}", f"{new} new tonight")
    limit = f"of {span(night.budget_s)}" if night.budget_s is not None else "no limit"
    yield Tile("wall time", span(night.wall_s), f"{limit}, {count(night.workers, 'worker')}")
    price = seconds_per_percent(night)
    if price is not None:
        yield Tile(
            "cost of 1% gained", span(price), "of jobs, of the mean", estimated=night.gpu is None
        )


def _worse(comparison: Comparison) -> Tile:
    """Is anything worse? The first question of the morning."""
    kinds = [item.kind for item in comparison.changes]
    slower = kinds.count("regression")
    broken = sum(kinds.count(kind) for kind in ("withdrawn", "failed_to_verify", "model_failed"))
    parts = [
        count(slower, "regression") if slower else "",
        f"{broken} not verified or failed" if broken else "",
    ]
    more = ", ".join(part for part in parts if part) or "no regression, nothing failed"
    if comparison.against is None and not broken:
        more = "nothing failed, no earlier night"
    return Tile("worse", str(slower + broken), more, "bad" if slower + broken else "good")


def _fastest(rows: Sequence[ModelRow], basis: Basis) -> str:
    best = sorted(rows, key=lambda row: -(speedup(row) or 0.0))
    mark = "" if basis == "measured" else "≈ "
    told = [f"{row.name} {mark}{ratio_text(speedup_ratio(row))}" for row in best[:SHOWN_FASTEST]]
    return ", ".join(told) + (" …" if len(best) > SHOWN_FASTEST else "")


def _against(comparison: Comparison, history: Sequence[NightlyRun]) -> str:
    if comparison.against is None:
        return "No earlier night to compare with."
    before = next((item for item in history if item.id == comparison.against), None)
    day = f" of {when(before.started)}" if before is not None else ""
    if not comparison.changes:
        return f"Nothing changed beyond noise since night {comparison.against}{day}."
    return f"Since night {comparison.against}{day}."


def _figures(
    night: NightlyRun, history: Sequence[NightlyRun], kernels: Mapping[str, Kernel]
) -> Iterator[PlotFigure | None]:
    rows = region_order(night)[:MOST_ROWS]
    yield from (region_figure(night, rows, kernels, basis) for basis in BASES)
    yield from (trend_figure(history, night, basis) for basis in BASES)


def _versions(night: NightlyRun) -> Iterator[tuple[str, str]]:
    yield "GPU", night.gpu or "none: nothing was measured"
    yield "dtypes", ", ".join(night_dtypes(night)) or "not recorded"
    for name, value in night.versions.model_dump().items():
        yield name, str(value) if value is not None else "none"
    yield "target", night.target
    yield "zoo", f"{night.zoo}, SHA-256 {night.zoo_sha256}"


TONES: dict[Status, Tone] = {
    "met": "good",
    "improved": "good",
    "verified": "good",
    "kept_original": "warn",
    "kept_compiled": "warn",
    "failed": "bad",
}
EDITED = "This certificate was edited after it was signed: 'agentkernel verify' says where."


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
        tiles=tuple(_run_tiles(certificate)),
        tables=(_table(certificate, entries, words),),
        figures=(figure,) if figure is not None else (),
        folds_title="Sources",
        folds=tuple(_fold(entry, entries, certificate) for entry in entries),
        versions=tuple(
            (name, str(value) if value is not None else "none")
            for name, value in certificate.versions.model_dump().items()
        ),
    )


def _caption(certificate: Certificate) -> str:
    versions = certificate.versions
    where = machine(certificate)
    kinds = ", ".join(dtypes(certificate)) or "no tensor inputs"
    return (
        f"{where[0].upper()}{where[1:]}; {kinds}; torch {versions.torch}, triton {versions.triton}"
    )


def _run_tiles(certificate: Certificate) -> Iterator[Tile]:
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
    return Table("candidates", "Candidates", words, "candidate", columns, rows).without_empty()


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
        return Cell(verdict.undecided or f"stopped at {verdict.gate}", verdict.gate, tone="bad")
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
        source=source_lines(parent.source if parent else None, candidate.source),
        record=certificate.model_dump_json(indent=1) if own else "",
    )


def _roofline(certificate: Certificate, words: str) -> PlotFigure | None:
    plan, profile = certificate.plan, certificate.profile
    if plan is None or profile is None or not plan.analysis.memory_time_us:
        return None
    picture = drawing_of(profile, plan.analysis)
    chart = roofline_chart(picture)
    return roofline_figure(chart, f"{words}.", estimated=picture.estimated)
