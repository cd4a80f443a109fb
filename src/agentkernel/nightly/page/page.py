"""What does the page of a night hold, and how does a page become one file of HTML?"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

import jinja2
from markupsafe import Markup

from agentkernel.domain.night import Comparison, ModelRow, NightlyRun
from agentkernel.domain.region import Basis, Kernel
from agentkernel.nightly.page import roofline, trend
from agentkernel.nightly.page.budget import budget_bars, budget_words
from agentkernel.nightly.page.changes import change_groups, headline, headline_tone
from agentkernel.nightly.page.content import ChangeLine, Page, PlotFigure, PlotLabel, Tile
from agentkernel.nightly.page.costs import seconds_per_percent
from agentkernel.nightly.page.folds import MOST_KERNELS, kernel_details
from agentkernel.nightly.page.lineage import lineages
from agentkernel.nightly.page.speeds import is_faster, mean_speedup, speedup
from agentkernel.nightly.page.tables import MOST_ROWS, model_table, region_order, region_table
from agentkernel.nightly.page.withdrawn import is_replaced
from agentkernel.nightly.page.wording import (
    caption,
    count,
    lost_text,
    night_dtypes,
    span,
    times,
    when,
)

BASES: tuple[Basis, ...] = ("measured", "estimated")
LEGEND = {
    "kernel": "verified kernel",
    "baseline": "baseline kept",
    "eager": "eager",
    "compiled": "torch.compile",
}
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
        figures=tuple(_figures(night, history, kernels)),
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
        svg=Markup,  # drawings escape their own texts
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
        mean = mean_speedup(night.models, basis)
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
                times(mean) if basis == "measured" else f"≈ {times(mean)}",
                over,
                "good" if mean > 1.01 else "",
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
    told = [f"{row.name} {mark}{times(speedup(row))}" for row in best[:SHOWN_FASTEST]]
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
) -> Iterator[PlotFigure]:
    rows = region_order(night)[:MOST_ROWS]
    for basis in BASES:
        plot = roofline.region_plot(night, rows, kernels, basis)
        if plot is not None:
            yield plot_figure(plot, f"{caption(night, basis)}.")
    for basis in BASES:
        found = trend.trend_of(history, night, basis)
        if found is not None:
            yield _trend_figure(found, f"{caption(night, basis)}.")


def plot_figure(plot: roofline.Plot, words: str) -> PlotFigure:
    """A roofline with its legend."""
    used = {dot.name for dot in plot.dots}
    shown = [item for item in LEGEND.items() if item[0] in used]
    if any(dot.before for dot in plot.dots):
        shown.append(("before", "the same region in eager"))
    left = f"{plot.left_out} could not be drawn." if plot.left_out else ""
    return PlotFigure(
        title=plot.title,
        caption=words,
        wide=roofline.plot_svg(plot, roofline.WIDE, "wide"),
        narrow=roofline.plot_svg(plot, roofline.NARROW, "narrow"),
        legend=tuple(shown),
        note=left,
        named=tuple(PlotLabel(dot.label, dot.href) for dot in roofline.numbered(plot)),
        estimated=plot.estimated,
    )


def _trend_figure(found: trend.Trend, words: str) -> PlotFigure:
    base = "the faster of eager and torch.compile" if found.basis == "measured" else "eager"
    notes = []
    if found.changed:
        notes.append("A dashed line: versions changed before that night.")
    if found.left_out:
        other = "another GPU" if found.basis == "measured" else "another target"
        notes.append(f"{count(found.left_out, 'night')} on {other} left out.")
    return PlotFigure(
        title=f"Speedup over {base}, night by night ({found.basis})",
        caption=words,
        wide=trend.trend_svg(found, trend.WIDE, "wide"),
        narrow=trend.trend_svg(found, trend.NARROW, "narrow"),
        note=" ".join(notes),
        estimated=found.basis == "estimated",
    )


def _versions(night: NightlyRun) -> Iterator[tuple[str, str]]:
    yield "GPU", night.gpu or "none: nothing was measured"
    yield "dtypes", ", ".join(night_dtypes(night)) or "not recorded"
    for name, value in night.versions.model_dump().items():
        yield name, str(value) if value is not None else "none"
    yield "target", night.target
    yield "zoo", f"{night.zoo}, SHA-256 {night.zoo_sha256}"
