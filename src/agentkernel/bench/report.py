"""Report files of a benchmark: JSON summary, Markdown tables and a plot of sorted speedups.

All of them can be made again from the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agentkernel.bench.answers import (
    CLEARLY_FASTER,
    FLOOR,
    OWN_SHARE,
    BestFigures,
    fastest,
    over_best,
)
from agentkernel.bench.suite import BASELINES, Baseline, Row
from agentkernel.bench.summary import BaselineFigures, Level, Summary, summarise
from agentkernel.domain.formatting import with_interval
from agentkernel.domain.plain_text import plain
from agentkernel.domain.profile import Ratio
from agentkernel.runtime.stages import StageTime
from agentkernel.storage.files import write_atomic
from agentkernel.tools.charts.chart import Axis, Chart, Series
from agentkernel.tools.charts.svg import Frame, svg_file
from agentkernel.tools.own_files import is_json_with, require_all_generated, require_generated
from agentkernel.tools.speedup import THRESHOLDS, median
from agentkernel.workflows.report import table

NOTHING = "not measured"
PICTURE = "speedups.svg"
DERIVED = " (derived)"


def markdown(summary: Summary, rows: Sequence[Row]) -> str:
    """Head, a table of correctness and cost, one table a baseline, one line a problem."""
    parts = [f"# Bench of `{summary.suite}`", "", _head(summary, rows), "", *_levels(summary)]
    parts += ["", f"{samples_line(summary)}."]
    if summary.gpus:
        parts += ["", floor_line(summary)]
    parts += [
        part for line in (drift_line(rows), *autotune_lines(rows)) if line for part in ("", line)
    ]
    if summary.gpus:
        parts += ["", "## Over the best of the baselines", ""]
        parts += table(BEST_HEADINGS, [best_cells(level) for level in summary.levels])
    for number, baseline in enumerate(BASELINES):
        parts += ["", f"## Against {baseline}", ""]
        found = [(level.level, level.against[number]) for level in summary.levels]
        if any(item.problems for _, item in found):
            parts += _against(found, summary.k)
        else:
            parts.append(f"fast_p: {absent(rows, number)}.")
    if summary.gpus:
        parts += ["", f"![speedup by problem]({PICTURE})"]
    parts += ["", "## Problems", "", *_problems(rows)]
    parts += ["", "## Answers and time", ""]
    parts += table(ANSWER_HEADINGS, [answer_cells(row) for row in rows])
    return "\n".join([*parts, ""])


def _head(summary: Summary, rows: Sequence[Row]) -> str:
    where = f"measured on {', '.join(summary.gpus)}" if summary.gpus else "no GPU: times estimated"
    return (
        f"{len(rows)} problems, {summary.k} sample{'s' if summary.k > 1 else ''} each; coder "
        f"{', '.join(summary.coders)}; target {', '.join(summary.targets)}; {where}; "
        f"{', '.join(summary.versions)}."
    )


def absent(rows: Sequence[Row], number: int) -> str:
    """Why there is nothing against a baseline."""
    notes = {row.times.autotune_note for row in rows if row.gpu is not None}
    return min(notes) if notes and number == len(BASELINES) - 1 else NOTHING


def floor_line(summary: Summary) -> str:
    """Which answers are worse than a baseline."""
    names = summary.levels[-1].best.below
    return f"Answers surely below {FLOOR:g}x of a baseline: {', '.join(names) or 'none'}."


def samples_line(summary: Summary) -> str:
    """What a coder is worth by its samples, over all levels: one drawn, the best of k, cheats."""
    found, k = summary.levels[-1], summary.k
    passed = [f"pass@1 {share(found.correct)}"]
    passed += [f"pass@{k} {share(found.pass_at_k)}"] if k > 1 else []
    eager = found.against[0]
    faster = NOTHING if eager.speedup_at_k is None else f"{times(eager.speedup_at_k)} over eager"
    many = "" if found.samples == 1 else "s"
    caught = f"hack rate {found.hack_rate:.1%} of {found.samples} sample{many}"
    return ", ".join([*passed, f"speedup@{k} {faster}", caught])


def drift_line(rows: Sequence[Row]) -> str:
    """How eager's times of this bench stand to those in the cache; "" where none were there."""
    found = [row.times.eager_drift for row in rows if row.times.eager_drift is not None]
    if not found:
        return ""
    return (
        f"Eager took {median(found):.3f}x of its cached time, the median of {len(found)} problems "
        f"({min(found):.3f}x to {max(found):.3f}x)."
    )


def autotune_lines(rows: Sequence[Row]) -> tuple[str, ...]:
    """How many problems have max-autotune's time from the cache, and why some have none."""
    derived = sum(row.times.autotune_derived for row in rows)
    failed = [
        f"{row.name} ({row.times.autotune_note})"
        for row in rows
        if row.times.autotune_us is None and row.times.autotune_note.startswith("failed")
    ]
    return (
        "max-autotune's time is the cached one, times eager's drift, for "
        f"{derived} of {len(rows)} problems: derived, not interleaved."
        if derived
        else "",
        f"max-autotune has no time on {', '.join(failed)}." if failed else "",
    )


def _levels(summary: Summary) -> list[str]:
    return table(level_headings(summary.k), [level_cells(level) for level in summary.levels])


def level_headings(k: int) -> tuple[str, ...]:
    """The columns of `level_cells`."""
    counts = ("level", "problems", "broken", "correct", "out of time", "interpreted", "KB rule")
    figures = (f"pass@{k}", f"roofline@{k}", "energy", "estimated")
    return (*counts, *figures, "median s", "total s", "drafts", "hacks")


def level_cells(level: Level) -> tuple[str, ...]:
    """Correctness and cost of one level, as text."""
    hacks = ", ".join(f"{name} {count}" for name, count in level.hacks.items())
    return (
        level.level,
        str(level.problems),
        str(level.broken),
        share(level.correct),
        str(level.out_of_time),
        str(level.interpreted),
        share(level.kernelbench_correct),
        share(level.pass_at_k),
        share(level.roofline_at_k),
        times(level.energy),
        times(level.estimated),
        "-" if level.median_s is None else f"{level.median_s:.0f}",
        f"{level.total_s:.0f}",
        "-" if level.candidates is None else f"{level.candidates:.1f}",
        hacks or "none",
    )


def against_headings(k: int) -> tuple[str, ...]:
    """The columns of `against_cells`."""
    fast = tuple(f"fast_{p:g}" for p in THRESHOLDS)
    return ("level", "problems", *fast, "mean", "left out", f"speedup@{k}", "answer")


def against_cells(level: str, found: BaselineFigures) -> tuple[str, ...]:
    """One level against one baseline, as text."""
    return (
        level,
        str(found.problems),
        *(share(found.fast.get(f"{p:g}")) for p in THRESHOLDS),
        times(found.geometric_mean),
        str(found.left_out),
        times(found.speedup_at_k),
        times(found.answer_mean),
    )


BEST_HEADINGS = (
    "level",
    "rows",
    "answer",
    f"at {CLEARLY_FASTER:g}x",
    "candidate",
    "within 3%",
    f"own >= {OWN_SHARE:.0%}",
    f"below {FLOOR:g}x",
    "median s",
)


def best_cells(level: Level) -> tuple[str, ...]:
    """One level over the best of the baselines: geometric means with the rows that they are of,
    and how many rows are at CLEARLY_FASTER, known well, by own kernels, or worse than a baseline.
    """
    found = level.best
    return (
        level.level,
        str(found.rows),
        f"{times(found.answer_mean)} ({found.answers})",
        str(found.fast),
        f"{times(found.candidate_mean)} ({found.candidates})",
        f"{found.narrow} of {found.candidates}",
        f"{found.own} of {found.shares}",
        str(len(found.below)),
        "-" if level.median_s is None else f"{level.median_s:.0f}",
    )


def best_line(found: BestFigures) -> str:
    """The same in words, for all levels together."""
    return (
        f"answers {times(found.answer_mean)} of the best baseline over {found.answers} rows, "
        f"{found.fast} at {CLEARLY_FASTER:g}x, candidates {times(found.candidate_mean)} over "
        f"{found.candidates}, {found.own} of {found.shares} by own kernels, "
        f"{len(found.below)} below {FLOOR:g}x"
    )


ANSWER_HEADINGS = ("problem", "status", "x best", "best is", "own", "s", "wall s", "where it went")
STAGES_SHOWN = 6


def answer_cells(row: Row) -> tuple[str, ...]:
    """One problem: its best candidate over the fastest baseline, the share of its own kernels,
    and the stages that took longest; what worked beside the run stands in brackets."""
    best, baseline = row.best, fastest(row)
    stages = best.stages if best is not None else ()
    wall_s = sum(item.seconds for item in stages if not item.overlapped)
    return (
        row.name,
        row.status,
        interval(over_best(row)),
        baseline or "-",
        share(best.own_share if best is not None else None),
        f"{row.seconds:.0f}",
        f"{wall_s:.0f}" if stages else "-",
        stages_text(stages) or row.error or "-",
    )


def stages_text(stages: Sequence[StageTime]) -> str:
    """`search 24, judge 11 (max-autotune 61)`: whole seconds, the longest first."""
    own = [item for item in stages if not item.overlapped]
    beside = [item for item in stages if item.overlapped]
    longest = sorted(own, key=lambda item: -item.seconds)[:STAGES_SHOWN]
    text = ", ".join(_stage(item) for item in longest if item.seconds >= 0.5)
    return f"{text} ({', '.join(map(_stage, beside))})" if beside else text


def _stage(item: StageTime) -> str:
    return f"{item.stage} {item.seconds:.0f}"


def _against(found: Sequence[tuple[str, BaselineFigures]], k: int) -> list[str]:
    return table(against_headings(k), [against_cells(name, item) for name, item in found])


def _problems(rows: Sequence[Row]) -> list[str]:
    headings = ("problem", "status", *(f"x {name}" for name in BASELINES), "roofline", "s", "why")
    return table(headings, [problem_cells(row) for row in rows])


def problem_cells(row: Row) -> tuple[str, ...]:
    """One problem: its best sample, or what broke."""
    best = row.best
    ratios = [interval(best.against(name) if best is not None else None) for name in BASELINES]
    if best is not None and best.autotune_derived:
        ratios[-1] += DERIVED
    return (
        row.name,
        row.status,
        *ratios,
        share(best.roofline_fraction if best is not None else None),
        f"{row.seconds:.0f}",
        row.error or (best.reason if best is not None else ""),
    )


def interval(ratio: Ratio | None) -> str:
    """A measured ratio with its 95% interval."""
    return "-" if ratio is None else with_interval(ratio, unit="")


def share(value: float | None) -> str:
    """A fraction in percent; a dash for what nobody measured."""
    return "-" if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    """A ratio; a dash for what nobody measured."""
    return "-" if value is None else f"{value:.2f}x"


FRAME = Frame(760, 350, left=64)
KINDS: dict[Baseline, str] = {"eager": "c2", "torch.compile": "c1", "max-autotune": "c3"}
LEAST, MOST = 0.5, 2.0
"""The vertical axis shows at least this span."""


class Curve(NamedTuple):
    """The speedups over one baseline in ascending order, and how many problems have none."""

    baseline: Baseline
    values: tuple[float, ...]
    wrong: int


def curves(rows: Sequence[Row]) -> tuple[Curve, ...]:
    """One curve for each baseline that anything was measured against."""
    found: list[Curve] = []
    for baseline in BASELINES:
        timed = [row for row in rows if row.gpu is not None and row.times.of(baseline) is not None]
        best = [row.best for row in timed]
        ratios = [item.against(baseline) if item and item.correct else None for item in best]
        values = sorted(ratio.value for ratio in ratios if ratio is not None and ratio.value > 0)
        if timed:
            found.append(Curve(baseline, tuple(values), len(timed) - len(values)))
    return tuple(found)


def speedup_svg(rows: Sequence[Row], title: str) -> str:
    """A stand-alone SVG; without a measurement it says so."""
    found = curves(rows)
    values = [value for curve in found for value in curve.values]
    most = max((len(curve.values) for curve in found), default=0)
    chart = Chart(
        title,
        Axis(0, max(most, 1), "problems, by speedup", log=False, marked=()),
        Axis(min([LEAST, *values]), max([MOST, *values]), unit="x"),
        tuple(_series(curve) for curve in found),
        base=1,
        nothing=NOTHING,
    )
    return svg_file(title, (chart,), FRAME)


def _series(curve: Curve) -> Series:
    wrong = f", {curve.wrong} without a correct candidate" if curve.wrong else ""
    name = f"against {curve.baseline}: {len(curve.values)} problems{wrong}"
    points = tuple((place + 0.5, value) for place, value in enumerate(curve.values))
    return Series(name, KINDS[curve.baseline], points, radius=2.5)


REPORT, SUMMARY = "report.md", "summary.json"


def require_free(folder: Path) -> None:
    """Raise OutputError where a bench would write over somebody's file in `folder`: one with these
    names is its own beside a summary or rows of a bench."""
    require_generated(folder / SUMMARY, is_json_with("suite", "coders"))
    proven = (folder / SUMMARY).is_file() or any(folder.glob("rows*.jsonl"))
    require_all_generated((folder / REPORT, folder / PICTURE), proven)


def write_report(folder: Path, suite: str, rows: Sequence[Row]) -> Summary:
    """`summary.json`, `report.md` and the picture. Raises OutputError."""
    summary = summarise(suite, rows)
    title = f"{suite}: {', '.join(summary.coders)} on {', '.join(summary.gpus) or 'no GPU'}"
    write_atomic(folder / SUMMARY, summary.model_dump_json(indent=1) + "\n")
    write_atomic(folder / REPORT, plain(markdown(summary, rows)))
    write_atomic(folder / PICTURE, plain(speedup_svg(rows, title)))
    return summary
