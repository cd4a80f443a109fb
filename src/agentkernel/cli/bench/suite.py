"""`agentkernel bench`: a coder measured on a suite of problems, or two such results compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from agentkernel.cli.options import (
    AllowUnsandboxed,
    AsJson,
    BaseUrl,
    CoderName,
    ConfigFile,
    DebuggerName,
    Overrides,
    PlannerName,
    ReviewerName,
    TargetName,
    Temperature,
    TokenLimit,
    UsdLimit,
    model_flags,
)
from agentkernel.cli.terminal import print_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from agentkernel.bench.suite import BenchOptions, Row
    from agentkernel.bench.summary import BenchComparison, Summary

COMPARE = "compare"
EXIT_WORSE = 3
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="SUITE | compare A B",
        help="A folder with problem files, or with one folder of them a level; "
        "or the folders of two benches to compare.",
    ),
]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Runs of the coder a problem.")]
Devices = Annotated[
    str | None, typer.Option("--devices", help="GPUs, --lanes processes each: 0,1; or cpu,cpu.")
]
Budget = Annotated[
    float | None, typer.Option("--budget", min=1.0, help="Seconds a sample may take.")
]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Names that contain this. May be repeated.")
]
ShardName = Annotated[
    str | None, typer.Option("--shard", help="Part i of n alone: 2/5. The parts' rows merge.")
]
Lanes = Annotated[
    int | None,
    typer.Option("--lanes", min=1, help="Problems that share a GPU; timing takes turns."),
]
MaxAutotune = Annotated[
    bool | None,
    typer.Option("--max-autotune/--no-max-autotune", help="A third baseline, slow to build."),
]
AutotuneLimit = Annotated[
    float | None, typer.Option("--autotune-limit", min=1.0, help="Seconds max-autotune may take.")
]
Experience = Annotated[
    bool,
    typer.Option(
        "--experience", help="Use and keep what runs learn; a yardstick by default does not."
    ),
]
OutFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder of the rows; ./agentkernel-bench/SUITE.")
]


def bench(
    words: Words,
    coder: CoderName = None,
    base_url: BaseUrl = None,
    planner: PlannerName = None,
    debugger: DebuggerName = None,
    reviewer: ReviewerName = None,
    temperature: Temperature = None,
    tokens: TokenLimit = None,
    usd: UsdLimit = None,
    target: TargetName = None,
    samples: Samples = 1,
    devices: Devices = None,
    lanes: Lanes = None,
    budget: Budget = None,
    only: Only = None,
    shard: ShardName = None,
    max_autotune: MaxAutotune = None,
    autotune_limit: AutotuneLimit = None,
    experience: Experience = False,
    out: OutFolder = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    allow_unsandboxed: AllowUnsandboxed = False,
    as_json: AsJson = False,
) -> None:
    """Measure a coder on a suite; the same call goes on after a kill. Or compare two benches."""
    from agentkernel.domain.errors import SettingError

    if words[0] == COMPARE and len(words) == 3:
        _compare(Path(words[1]), Path(words[2]), as_json=as_json)
    if len(words) != 1:
        raise SettingError(
            f"bench got {len(words)} words: {' '.join(words)!r}. Expected one SUITE, or "
            "'compare A B' with the folders of two benches."
        )
    from agentkernel.bench.suite import BenchOptions
    from agentkernel.cli.options import with_checked_models
    from agentkernel.storage.configuration import load_settings
    from agentkernel.workflows.approval import check_approval

    flags: dict[str, object] = {
        "target": target,
        "coder": coder,
        "budget.time_s": budget,
        "judge.allow_unsandboxed": allow_unsandboxed or None,
        "judge.kernelbench": True,
        "knowledge.experience": experience,
        "profile.max_autotune": max_autotune,
        "profile.autotune_limit_s": autotune_limit,
        **model_flags(
            base_url=base_url,
            planner=planner,
            debugger=debugger,
            reviewer=reviewer,
            temperature=temperature,
            tokens=tokens,
            usd=usd,
        ),
    }
    settings = with_checked_models(load_settings(config, overrides or (), flags))
    check_approval(settings, None)
    asked = BenchOptions(settings=settings, samples=samples)
    suite = Path(words[0])
    out = out or Path("agentkernel-bench") / suite.resolve().name
    where = BenchPlacement(devices, lanes, shard, out)
    rows, summary, total = _run(asked, suite, only or [], where, silent=as_json)
    _show(rows, summary, total, out, as_json=as_json)
    raise typer.Exit(1 if any(row.error is not None for row in rows) else 0)


class BenchPlacement(NamedTuple):
    """On what a call works, on which part, and into which folder: as the flags say it."""

    devices: str | None
    lanes: int | None
    shard: str | None
    out: Path


def _run(
    asked: BenchOptions, suite: Path, only: list[str], where: BenchPlacement, *, silent: bool
) -> tuple[tuple[Row, ...], Summary, int]:
    """All rows there are, also those of other shards; and how many there are to be."""
    from agentkernel.bench.report import require_free, write_report
    from agentkernel.bench.run import finished_rows, run_bench
    from agentkernel.bench.sample import cache_folder
    from agentkernel.bench.suite import BenchTask, parse_shard, part, read_suite
    from agentkernel.runtime.machine import default_workers, parse_devices, visible_devices
    from agentkernel.tools.targets import find_target

    own = parse_shard(where.shard)
    problems = read_suite(suite, only)
    devices = parse_devices(where.devices, visible_devices())
    lanes = where.lanes or default_workers(devices, len(os.sched_getaffinity(0)))
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
        run_bench(mine, devices, out, own, _ignore if silent else print_row, lanes=lanes)
    except BaseException:
        if out.is_dir() and any(out.glob("rows*.jsonl")):
            reported()  # of what there is: the same call goes on
        raise
    return *reported(), len(tasks)


def _ignore(row: Row) -> None:
    """Nothing: the rows come at the end."""


def print_row(row: Row) -> None:
    """One line when a problem is done."""
    from agentkernel.bench.report import problem_cells

    cells = problem_cells(row)
    print_plain(f"{row.name}: {row.status}: {cells[-1]} ({row.seconds:.0f} s)")


def _show(rows: tuple[Row, ...], summary: Summary, total: int, out: Path, *, as_json: bool) -> None:
    from agentkernel.bench.report import floor_line
    from agentkernel.cli.terminal import console, print_json

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
    from agentkernel.bench.report import (
        absent,
        against_cells,
        against_headings,
        level_cells,
        level_headings,
        samples_line,
    )
    from agentkernel.bench.suite import BASELINES

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
    return parts


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    said = [any(cells[number] != "-" for cells in rows) for number in range(len(headings))]
    for number, heading in enumerate(headings):
        if said[number]:
            shown.add_column(heading, justify="left" if number == 0 else "right")
    for cells in rows:
        shown.add_row(*(cell for cell, keep in zip(cells, said, strict=True) if keep))
    return shown


def _compare(before: Path, after: Path, *, as_json: bool) -> None:
    from agentkernel.bench.suite import read_bench, unreadable_rows
    from agentkernel.bench.summary import compare
    from agentkernel.cli.terminal import console, print_json

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
    """The problems that moved."""
    from agentkernel.bench.report import interval

    moved = [item for item in found.moved if item.move in ("faster", "slower", "gained", "lost")]
    headings = ("problem", "", "x eager before", "x eager after")
    cells = [(item.name, item.move, interval(item.before), interval(item.after)) for item in moved]
    return _table(headings, cells)


def compare_lines(found: BenchComparison) -> list[str]:
    """How many moved which way, and what cannot be compared."""
    from typing import get_args

    from agentkernel.bench.report import times
    from agentkernel.bench.summary import Move

    counts = ((move, found.count(move)) for move in get_args(Move))
    lines = [", ".join(f"{count} {move}" for move, count in counts if count)]
    lines.append(f"after / before, geometric mean: {times(found.ratio)}")
    for names, where in ((found.only_before, "first"), (found.only_after, "second")):
        if names:
            lines.append(f"only in the {where}: {', '.join(names)}")
    return lines
