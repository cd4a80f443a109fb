"""`agentkernel bench`: a coder measured on a suite of problems, or two such results compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import typer
from rich.table import Table

from agentkernel.bench.report import (
    ANSWER_HEADINGS,
    BEST_HEADINGS,
    absent,
    against_cells,
    against_headings,
    answer_cells,
    best_cells,
    best_line,
    floor_line,
    interval,
    level_cells,
    level_headings,
    problem_cells,
    require_free,
    samples_line,
    times,
    write_report,
)
from agentkernel.bench.sample import cache_folder
from agentkernel.bench.suite import (
    BASELINES,
    BenchOptions,
    BenchTask,
    Row,
    SuiteProblem,
    parse_shard,
    part,
    read_bench,
    read_suite,
    unreadable_rows,
)
from agentkernel.bench.summary import BenchComparison, Move, Summary, compare
from agentkernel.cli.bench.options import BenchFlags
from agentkernel.cli.configuration import require_here, settings_from, with_checked_models
from agentkernel.cli.console import console
from agentkernel.cli.options import (
    settings_of,
)
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.domain.errors import SettingError
from agentkernel.runtime.machine import default_workers, parse_devices, visible_devices
from agentkernel.tools.targets import find_target
from agentkernel.workflows.approval import check_approval

COMPARE = "compare"
EXIT_WORSE = 3
ROWS_SHOWN = 30
"""Of more problems the rows stand in the report alone."""


def bench(flags: BenchFlags) -> None:
    """`agentkernel bench`."""
    if flags.words[0] == COMPARE and len(flags.words) == 3:
        _compare(Path(flags.words[1]), Path(flags.words[2]), as_json=flags.as_json)
    if len(flags.words) != 1:
        raise SettingError(
            f"bench got {len(flags.words)} words: {' '.join(flags.words)!r}. "
            "Expected one SUITE, or 'compare A B' with the folders of two benches."
        )

    values: dict[str, object] = {
        **settings_of(flags),
        "budget.time_s": flags.budget,
        "judge.kernelbench": True,
        "knowledge.experience": flags.experience,
        "profile.max_autotune": flags.max_autotune,
        "profile.autotune_limit_s": flags.autotune_limit,
    }
    settings = with_checked_models(settings_from(flags.configured, values))
    check_approval(settings, None)
    asked = BenchOptions(settings=settings, samples=flags.samples)
    suite = Path(flags.words[0])
    out = flags.out or Path("agentkernel-bench") / suite.resolve().name
    where = BenchPlacement(flags.devices, flags.lanes, flags.shard, out)
    problems = read_suite(suite, flags.only or [], flags.problems)
    rows, summary, total = _run(asked, suite, problems, where, silent=flags.as_json)
    _show(rows, summary, total, out, as_json=flags.as_json)
    raise typer.Exit(1 if any(row.error is not None for row in rows) else 0)


class BenchPlacement(NamedTuple):
    """On what a call works, on which part, and into which folder: as the flags say it."""

    devices: str | None
    lanes: int | None
    shard: str | None
    out: Path


def _run(
    asked: BenchOptions,
    suite: Path,
    problems: Sequence[SuiteProblem],
    where: BenchPlacement,
    *,
    silent: bool,
) -> tuple[tuple[Row, ...], Summary, int]:
    """All rows there are, also those of other shards; and how many there are to be."""
    from agentkernel.bench.run import finished_rows, run_bench

    own = parse_shard(where.shard)
    devices = parse_devices(where.devices, visible_devices())
    lanes = where.lanes or default_workers(devices, len(os.sched_getaffinity(0)))
    require_here(asked.settings, "bench")
    find_target(asked.settings.target)
    cache = str(cache_folder())
    out = where.out
    require_free(out)
    place = str(out.resolve())
    tasks = [BenchTask(problem=item, asked=asked, out=place, cache=cache) for item in problems]
    mine = part(tasks, own)

    def reported() -> tuple[tuple[Row, ...], Summary]:
        rows = finished_rows(tasks, out)
        return rows, write_report(out, str(suite), rows)

    try:
        run_bench(mine, devices * lanes, out, own, _ignore if silent else print_row)
    except BaseException:
        if out.is_dir() and any(out.glob("rows*.jsonl")):
            reported()  # of what there is: the same call goes on
        raise
    return *reported(), len(tasks)


def _ignore(row: Row) -> None:
    """Nothing: the rows come at the end."""


def print_row(row: Row) -> None:
    """One line when a problem is done."""
    cells = problem_cells(row)
    print_plain(f"{row.name}: {row.status}: {cells[-1]} ({row.seconds:.0f} s)")


def _show(rows: tuple[Row, ...], summary: Summary, total: int, out: Path, *, as_json: bool) -> None:
    if as_json:
        values = [{"status": row.status, **row.model_dump(mode="json")} for row in rows]
        whole = {"problems": total, "summary": summary.model_dump(mode="json"), "folder": str(out)}
        print_json({"rows": values, **whole})
        return
    screen = console()
    for shown in tables(summary, rows):
        screen.print(shown)
    if summary.gpus:
        screen.print(floor_line(summary), markup=False)
    if len(rows) < total:
        screen.print(f"{len(rows)} of {total} problems so far: the other shards have the rest")
    screen.print(f"report       {out / 'report.md'}", markup=False)


def tables(summary: Summary, rows: tuple[Row, ...]) -> list[Table | str]:
    """Correctness and cost, then one table a baseline; columns that say nothing are left out."""
    cells = [level_cells(level)[:-1] for level in summary.levels]
    hacks = level_cells(summary.levels[-1])[-1]
    parts: list[Table | str] = [
        _table(level_headings(summary.k)[:-1], cells),
        f"hacks: {hacks}",
        samples_line(summary),
    ]
    for number, baseline in enumerate(BASELINES):
        found = [(level.level, level.against[number]) for level in summary.levels]
        if not any(item.problems for _, item in found):
            parts.append(f"fast_p against {baseline}: {absent(rows, number)}")
            continue
        parts.append(f"against {baseline}")
        shown = [against_cells(name, item) for name, item in found]
        parts.append(_table(against_headings(summary.k), shown))
    if len(rows) <= ROWS_SHOWN:
        parts.append(_table(ANSWER_HEADINGS, [answer_cells(row) for row in rows]))
    if summary.gpus:
        parts.append("over the best of the baselines")
        parts.append(_table(BEST_HEADINGS, [best_cells(level) for level in summary.levels]))
    return parts


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    shown = Table(box=None, pad_edge=False)
    said = [any(cells[number] != "-" for cells in rows) for number in range(len(headings))]
    for number, heading in enumerate(headings):
        if said[number]:
            shown.add_column(heading, justify="left" if number == 0 else "right")
    for cells in rows:
        shown.add_row(*(cell for cell, keep in zip(cells, said, strict=True) if keep))
    return shown


def _compare(before: Path, after: Path, *, as_json: bool) -> None:
    found = compare(read_bench(before), read_bench(after))
    unreadable = [unreadable_rows(path) for path in (before, after)]
    if as_json:
        print_json({**found.model_dump(mode="json"), "unreadable": unreadable})
    else:
        screen = console()
        screen.print(compare_table(found))
        for line in compare_lines(found):
            screen.print(line, markup=False)
        for number, path in zip(unreadable, (before, after), strict=True):
            if number:
                screen.print(f"left out: {number} lines of {str(path)!r} are no row", markup=False)
    raise typer.Exit(EXIT_WORSE if found.worse else 0)


def compare_table(found: BenchComparison) -> Table:
    """The problems that moved; of few problems all."""
    moves = ("faster", "slower", "gained", "lost")
    few = len(found.moved) <= ROWS_SHOWN
    headings = ("problem", "", "x eager before", "after", "answer x best before", "after")
    cells = [
        (
            item.name,
            item.move,
            interval(item.before),
            interval(item.after),
            *map(times, item.answers),
            *(f"{value:.0f}" for value in item.seconds),
        )
        for item in found.moved
        if few or item.move in moves
    ]
    return _table((*headings, "s before", "after"), cells)


def compare_lines(found: BenchComparison) -> list[str]:
    """How many moved which way, and what cannot be compared."""

    counts = ((move, found.count(move)) for move in get_args(Move))
    lines = [", ".join(f"{count} {move}" for move, count in counts if count)]
    lines.append(f"after / before, geometric mean: {times(found.ratio)}")
    if any(item.rows for item in found.best):
        lines += [
            f"{when}: {best_line(item)}, median {seconds or 0.0:.0f} s"
            for when, item, seconds in zip(
                ("before", "after"), found.best, found.median_s, strict=True
            )
        ]
    for names, where in ((found.only_before, "first"), (found.only_after, "second")):
        if names:
            lines.append(f"only in the {where}: {', '.join(names)}")
    return lines
