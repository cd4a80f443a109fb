"""`agentkernel redteam`: the judge against a corpus of hostile and honest candidates.

Exits 0 where all verdicts are as expected, else 3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.table import Table

from agentkernel.bench.redteam.corpus import (
    CorpusEntry,
    CorpusFinding,
    Journal,
    JudgedBy,
    acts_on,
    read_corpus,
)
from agentkernel.bench.redteam.report import CorpusSummary, summarise, write_table
from agentkernel.bench.redteam.runner import corpus_settings, default_jobs, judge_corpus
from agentkernel.cli.bench.options import RedteamFlags
from agentkernel.cli.console import console
from agentkernel.cli.rendering.text import PlainConsole
from agentkernel.cli.terminal import print_json
from agentkernel.domain.errors import MissingDependency
from agentkernel.runtime.machine import installed_versions, local_gpu
from agentkernel.tools.judge.settings import judge_sha256

EXIT_UNEXPECTED = 3


def redteam(flags: RedteamFlags) -> None:
    """`agentkernel redteam`."""
    entries = read_corpus(flags.corpus, flags.only or ())
    summary = _judge(
        flags.corpus,
        entries,
        flags.jobs,
        flags.journal,
        allow_unsandboxed=flags.allow_unsandboxed,
        silent=flags.as_json,
    )
    if flags.write is not None:
        write_table(flags.write, summary, entries)
    if flags.as_json:
        print_json(summary)
    else:
        screen = console()
        screen.print(table(summary))
        for line in summary_lines(summary):
            screen.print(line, markup=False)
    raise typer.Exit(EXIT_UNEXPECTED if summary.unexpected else 0)


def _judge(
    corpus: Path,
    entries: tuple[CorpusEntry, ...],
    jobs: int | None,
    journal: Path | None,
    *,
    allow_unsandboxed: bool,
    silent: bool,
) -> CorpusSummary:

    gpu = local_gpu()
    device: Literal["cpu", "cuda"] = "cpu" if gpu is None or gpu.capability is None else "cuda"
    acting = [entry for entry in entries if acts_on(entry, device)]
    if not acting:
        raise MissingDependency(
            f"None of {len(entries)} candidates can act here: they need a GPU. Next: run it on one."
        )
    jobs = jobs or default_jobs(device)
    settings = corpus_settings(device, jobs, allow_unsandboxed=allow_unsandboxed)
    on = "triton interpreter" if gpu is None or device == "cpu" else gpu.name
    by = JudgedBy(judge_sha256=judge_sha256(), device=on, versions=installed_versions())
    notes = None if journal is None else Journal(journal, by)
    began = time.monotonic()
    with progress(len(acting), silent=silent) as say:
        found = judge_corpus(acting, settings, jobs, say, notes)
    return summarise(
        corpus,
        found,
        [entry for entry in entries if entry not in acting],
        by,
        jobs=jobs,
        wall_s=time.monotonic() - began,
    )


def progress(
    total: int, *, silent: bool
) -> AbstractContextManager[Callable[[CorpusFinding], None]]:
    """On stderr while candidates are judged: a bar, or a line each where no terminal watches."""

    @contextmanager
    def shown() -> Iterator[Callable[[CorpusFinding], None]]:

        screen = PlainConsole(stderr=True)
        columns = (BarColumn(), MofNCompleteColumn(), Elapsed(), TextColumn("{task.description}"))
        with Progress(
            *columns, console=screen, transient=True, disable=silent or not screen.is_terminal
        ) as bar:
            task = bar.add_task("the first ones", total=total)

            def say(item: CorpusFinding) -> None:
                mark = "" if item.right else " NOT AS EXPECTED"
                bar.update(task, advance=1, description=f"{item.name}: {item.gate}{mark}")
                if not silent and not screen.is_terminal:
                    done = f"{int(bar.tasks[0].completed)} of {total}"
                    screen.print(f"{done}  {item.name}: {item.gate}{mark}", markup=False)

            yield say

    return shown()


def table(summary: CorpusSummary) -> Table:
    """One row a candidate; those that came out otherwise last, where eyes are."""
    found = sorted(summary.found, key=lambda item: not item.right)
    shown = Table(box=None, pad_edge=False)
    for heading in ("candidate", "", "problem", "expected", "found"):
        shown.add_column(heading, overflow="fold")
    shown.add_column("s", justify="right")
    shown.add_column("why", overflow="ellipsis", no_wrap=True, max_width=40)
    for item in found:
        gate = item.gate or "undecided"
        shown.add_row(
            item.name,
            item.kind,
            item.problem,
            item.expected,
            gate if item.right else f"{gate} !",
            f"{item.seconds:.1f}",
            item.reason.replace("[", "\\["),
            style=None if item.right else "bold red",
        )
    return shown


def summary_lines(summary: CorpusSummary) -> list[str]:
    """How many were as expected, how fast, and where the time went."""
    spent = summary.spent
    whole = max(1e-9, spent.start_s + spent.capture_s + spent.cases_s + spent.profile_s)
    shares = ", ".join(
        f"{name} {getattr(spent, f'{name}_s') / whole:.0%}"
        for name in ("start", "capture", "cases", "profile")
    )
    lines = [f"{summary.right} of {summary.judged} as expected on {summary.device}"]
    if summary.skipped:
        lines.append(f"{len(summary.skipped)} left out: they need a GPU")
    lines.append(
        f"{summary.per_minute:g} candidates a minute ({summary.wall_s:.0f} s, "
        f"{summary.jobs} processes); time: {shares}"
    )
    if summary.unexpected:
        lines.append(f"not as expected: {', '.join(summary.unexpected)}")
    return lines
