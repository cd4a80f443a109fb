"""Report files of a benchmark: JSON summary, Markdown tables and a plot of sorted speedups.

All of them can be made again from the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from agentkernel.bench.suite import BASELINES, Baseline, Row
from agentkernel.bench.summary import FLOOR, BaselineFigures, Level, Summary, summarise
from agentkernel.domain.plain_text import plain
from agentkernel.domain.profile import Ratio
from agentkernel.storage.files import write_atomic
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
    for number, baseline in enumerate(BASELINES):
        parts += ["", f"## Against {baseline}", ""]
        found = [(level.level, level.against[number]) for level in summary.levels]
        if any(item.problems for _, item in found):
            parts += _against(found, summary.k)
        else:
            parts.append(f"fast_p: {absent(rows, number)}.")
    if summary.gpus:
        parts += ["", f"![speedup by problem]({PICTURE})"]
    return "\n".join([*parts, "", "## Problems", "", *_problems(rows), ""])


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
    names = summary.levels[-1].below
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
    counts = ("level", "problems", "broken", "correct", "interpreted", "KB rule")
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
    return "-" if ratio is None else f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def share(value: float | None) -> str:
    """A fraction in percent; a dash for what nobody measured."""
    return "-" if value is None else f"{value:.0%}"


def times(value: float | None) -> str:
    """A ratio; a dash for what nobody measured."""
    return "-" if value is None else f"{value:.2f}x"


WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 84
COLOURS: dict[Baseline, str] = {
    "eager": "#9a3412",
    "torch.compile": "#1d4ed8",
    "max-autotune": "#0b6e4f",
}
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
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
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="14" fill="#111827">{escape(title)}</text>',
    ]
    values = [value for curve in found for value in curve.values]
    if not values:
        return "\n".join(
            [*parts, _text(WIDTH / 2, HEIGHT / 2, "not measured", "middle"), "</svg>\n"]
        )
    low, high = min(LEAST, *values), max(MOST, *values)
    parts += _grid(low, high)
    most = max(len(curve.values) for curve in found)
    for number, curve in enumerate(found):
        parts += _curve(curve, number, low, high, most)
    parts.append(_text(WIDTH / 2, HEIGHT - BOTTOM + 20, "problems, by speedup", "middle"))
    return "\n".join([*parts, "</svg>\n"])


def _y(value: float, low: float, high: float) -> float:
    part = math.log(value / low) / math.log(high / low)
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def _grid(low: float, high: float) -> list[str]:
    lines: list[str] = []
    for tick in (item for item in TICKS if low <= item <= high):
        here = _y(tick, low, high)
        colour = "#111827" if tick == 1 else "#e5e7eb"
        lines.append(
            f'<line x1="{LEFT}" y1="{here:.1f}" x2="{WIDTH - RIGHT}" y2="{here:.1f}" '
            f'stroke="{colour}"/>'
        )
        lines.append(_text(LEFT - 6, here + 4, f"{tick:g}x", "end"))
    return lines


def _curve(curve: Curve, number: int, low: float, high: float, most: int) -> list[str]:
    colour, legend = COLOURS[curve.baseline], HEIGHT - BOTTOM + 40 + 14 * number
    step = (WIDTH - LEFT - RIGHT) / max(most, 1)
    marks = [
        f'<circle cx="{LEFT + (index + 0.5) * step:.1f}" cy="{_y(value, low, high):.1f}" r="2.5" '
        f'fill="{colour}"/>'
        for index, value in enumerate(curve.values)
    ]
    wrong = f", {curve.wrong} without a correct candidate" if curve.wrong else ""
    words = f"against {curve.baseline}: {len(curve.values)} problems{wrong}"
    dot = f'<circle cx="{LEFT + 5}" cy="{legend - 4}" r="4" fill="{colour}"/>'
    return [*marks, dot, _text(LEFT + 16, legend, words, "start")]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#374151">'
        f"{escape(words)}</text>"
    )


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
