"""`agentkernel train problems` and `pairs`: generated modules, and kernels for them, judged.

The same call continues after a kill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from agentkernel.cli.console import progress_bar
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.cli.train.options import PairsFlags, ProblemsFlags
from agentkernel.cli.train.outcome import judging_device
from agentkernel.domain.errors import SettingError
from agentkernel.tools.targets import find_target
from agentkernel.training.data.generator import MODULE_KINDS
from agentkernel.training.data.pair_worker import PairSettings
from agentkernel.training.data.pairs import (
    PairsReport,
    generated,
    make_pairs,
    missed_file,
    problems_in,
    write_problems,
)


def problems(flags: ProblemsFlags) -> None:
    """`agentkernel train problems`."""
    fresh = write_problems(flags.count, flags.seed, flags.out)
    if flags.as_json:
        print_json({"out": str(flags.out), "modules": flags.count, "written": fresh})
    else:
        print_plain(f"{flags.count} modules in {str(flags.out)!r}, {fresh} of them new")


def pairs(flags: PairsFlags) -> None:
    """`agentkernel train pairs`."""
    if flags.path is None and flags.count is None:
        raise SettingError(
            "pairs got neither --count nor --problems. Expected one: made modules never end. Next: "
            f"agentkernel train pairs --out {flags.out} --count 1000"
        )
    if flags.path is not None and not flags.path.exists():
        raise SettingError(
            f"No problems at {str(flags.path)!r}. Expected a folder of modules or KernelBook's "
            "shards. Next: check the path."
        )
    if flags.path is not None and flags.kind:
        raise SettingError(
            f"--kind {flags.kind[0]!r} chooses among made modules, and --problems "
            f"{str(flags.path)!r} brings others. Expected one of the two. Next: leave --kind out."
        )
    resolved = find_target(flags.target)
    judged_on = judging_device(
        flags.device, measurable=resolved.measurable, target=resolved.target.name
    )
    if flags.times == "measured" and judged_on == "cpu":
        raise SettingError(
            "--times 'measured' needs kernels judged on a GPU; here they are interpreted. Expected "
            "'estimated' or 'none'. Next: --times estimated"
        )
    verification = PairSettings().verification.evolve(device=judged_on)
    settings = PairSettings(
        target=resolved.target.name,
        verification=verification,
        measure=flags.times == "measured",
        estimate=flags.times == "estimated",
        schedules=flags.schedules,
        broken=flags.broken,
    )
    with progress(flags.count, silent=flags.as_json) as (say, show):
        made = make_pairs(
            generated(flags.seed, kinds_of(flags.kind))
            if flags.path is None
            else problems_in(flags.path, flags.licence),
            flags.out,
            settings,
            jobs=flags.jobs or len(os.sched_getaffinity(0)),
            most=flags.count,
            say=say,
            show=show,
        )
    if flags.as_json:
        print_json(made)
    else:
        say("\n".join(pairs_lines(made, flags.out)))
    raise typer.Exit(1 if made.problems and not made.rows and not made.known else 0)


def kinds_of(named: list[str] | None) -> tuple[str, ...]:
    """Of MODULE_KINDS, those that `named` names; none where modules come as they are drawn. Raises
    SettingError."""
    chosen = tuple(named or ())
    for name in chosen:
        if name not in (*MODULE_KINDS, "all"):
            raise SettingError(
                f"No modules of the kind {name!r} are made. Expected all, "
                f"{', '.join(MODULE_KINDS)}. Next: --kind all"
            )
    return tuple(MODULE_KINDS) if "all" in chosen else chosen


@contextmanager
def progress(
    most: int | None, *, silent: bool
) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """`print_plain` for make_pairs' lines, which are dropped, and `show`, which says rate and time
    left."""
    begun_s = time.monotonic()
    with progress_bar("rows", silent=silent) as bar:
        yield (
            lambda line: None,
            lambda rows, fresh: bar(
                rows, most, rate(rows, fresh, most, time.monotonic() - begun_s)
            ),
        )


def rate(rows: int, fresh: int, most: int | None, seconds: float) -> str:
    """`2.1 rows/s, 12 min left`."""
    if not fresh or seconds <= 0:
        return ""
    each_s = seconds / fresh
    words = f"{1 / each_s:.1f} rows/s"
    if most is None:
        return words
    left_s = max(0, most - rows) * each_s
    return (
        f"{words}, {left_s:.0f} s left" if left_s < 120 else f"{words}, {left_s / 60:.0f} min left"
    )


def pairs_lines(made: PairsReport, out: Path) -> list[str]:
    """What became of the modules."""
    labels = ", ".join(f"{count} {label}" for label, count in sorted(made.labels.items()))
    lines = [
        f"{made.rows} rows of {made.problems} modules in {made.seconds:.0f} s "
        f"({labels or 'none'}); {made.known} modules were known"
    ]
    if made.stages:
        stages = ", ".join(f"{count} at {stage}" for stage, count in sorted(made.stages.items()))
        lines.append(f"came to nothing: {stages}; why stands in {missed_file(out).name}")
    lines.append(f"Next: agentkernel train data --from {out} --out DATA")
    return lines
