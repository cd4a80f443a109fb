"""`agentkernel runs` and `show`: the list of runs, and one of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from agentkernel.agents.evidence import refusal_facts
from agentkernel.cli.configuration import runs_path
from agentkernel.cli.console import console
from agentkernel.cli.options import (
    RunsFlags,
    ShowFlags,
)
from agentkernel.cli.rendering.run import result_panel
from agentkernel.cli.rendering.text import show_error, show_us
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.domain.errors import RunNotFound, cause_of, one_line
from agentkernel.domain.formatting import count
from agentkernel.domain.plain_text import plain, sentence
from agentkernel.storage.files import read_regular_text
from agentkernel.tools.command_lines import resume
from agentkernel.tools.run_store import (
    RunStore,
    RunSummary,
    WorkAt,
    list_runs,
    read_run,
    work_at,
)
from agentkernel.workflows.models import models_section, recorded_attempts
from agentkernel.workflows.outcome import Result
from agentkernel.workflows.report import ModelsSection, diagnosis_cells, usage_rows
from agentkernel.workflows.results import relocated_result

MOST_CORRUPT = 20
"""Folders that cannot be read of which each has a line of its own."""


def runs(flags: RunsFlags) -> None:
    """`agentkernel runs`."""
    folder = runs_path(flags.runs_folder, flags.settings)
    found = list_runs(folder)
    if flags.as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    if not found:
        print_plain(f"No runs in {str(folder)!r}. Next: agentkernel optimize FILE --target h100")
        return

    corrupt = [item for item in found if item.error is not None]
    left_out = {item.id for item in corrupt[MOST_CORRUPT:]}
    never = {item.id for item in found if not item.began}
    shown = [item for item in found if item.id not in left_out | never]
    if shown:
        console().print(runs_table(shown))
    if never:
        print_plain(f"{count(len(never), 'run')} failed before a draft; --json names them.")
    if left_out:
        print_plain(f"{len(left_out)} more that cannot be read; --json names them.")


def runs_table(found: Sequence[RunSummary]) -> Table:
    """A row a run, whose id is whole however narrow the terminal is: it is there to be copied."""
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True, min_width=max(len(item.id) for item in found))
    for heading in ("created", "problem", "target", "status"):
        table.add_column(heading, overflow="fold")
    for item in found:
        table.add_row(item.id, item.created[:19], item.problem, item.target, item.status)
    return table


def show(flags: ShowFlags) -> None:
    """`agentkernel show`."""
    store = read_run(runs_path(flags.runs, flags.settings), flags.run)
    try:
        result = read_result(store)
        if flags.source:
            print_source(store, result)
        elif flags.as_json:
            print_everything(store, result)
        else:
            print_screen(store, result)
    finally:
        store.close()


def read_result(store: RunStore) -> Result | None:
    """The run's result, None while it is unfinished or where the file is damaged."""
    try:
        found = Result.model_validate_json(read_regular_text(store.result_path))
        return relocated_result(store, found)
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def print_source(store: RunStore, result: Result | None) -> None:
    """The drop-in of a finished run."""
    if result is None or result.candidate is None:
        raise RunNotFound(
            sentence(f"Run {store.id!r} has no drop-in, it {_why_none(result)}")
            + " Next: agentkernel runs"
        )
    try:
        source = read_regular_text(Path(result.candidate), typed=True)
    except (OSError, UnicodeDecodeError) as error:
        raise RunNotFound(
            f"Cannot read the drop-in {result.candidate!r} of run {store.id!r}: {one_line(error)}. "
            "Expected the Python file that optimize wrote. Next: optimize the module again."
        ) from error
    # A file or a program gets it as it is.
    print(plain(source) if sys.stdout.isatty() else source, end="")


def _why_none(result: Result | None) -> str:
    if result is None:
        return "is unfinished"
    if result.status == "failed":
        return f"failed: {cause_of(result.reason)}"
    return f"kept a baseline: {result.reason}"


def print_everything(store: RunStore, result: Result | None) -> None:
    """One object: manifest, candidates, verdicts, profiles, result."""
    records = store.records
    models = models_section(store, recorded_attempts(store))
    print_json(
        {
            "run": store.id,
            "folder": str(store.folder),
            "manifest": store.manifest.model_dump(mode="json"),
            "candidates": [item.model_dump(mode="json") for item in records.candidates()],
            "verdicts": [item.model_dump(mode="json") for item in records.verdicts()],
            "profiles": [item.model_dump(mode="json") for item in records.profiles()],
            "models": None
            if models is None
            else models.model_dump(mode="json", exclude={"calibration"}),
            "repaired": list(store.repaired),
            "result": None if result is None else result.model_dump(mode="json"),
        }
    )


def print_screen(store: RunStore, result: Result | None) -> None:
    """The candidates' table and the result panel."""
    screen = console()
    manifest = store.manifest
    screen.print(f"{manifest.problem.name} for {manifest.target}: {manifest.note}")
    for line in store.repaired:
        screen.print(line, markup=False)
    screen.print(candidate_table(store))
    for line in refusal_lines(store):
        screen.print(line, markup=False)
    models = models_section(store, recorded_attempts(store))
    if models is not None:
        screen.print()
        screen.print(model_table(models))
        for line in models.unpriced:
            screen.print(line, markup=False)
        if models.diagnoses:
            screen.print()
            screen.print(diagnosis_table(models))
        screen.print()
    working = work_at(store)
    if working is not None:
        screen.print(work_words(working), markup=False)
    elif result is None:
        screen.print(f"Unfinished. Next: {resume(store.folder)}", markup=False)
    else:
        screen.print(result_panel(result))


def work_words(working: WorkAt) -> str:
    """`At work: process 4711, judge of round 1.`"""
    who = "a process" if working.pid is None else f"process {working.pid}"
    return f"At work: {who}{f', {working.stage}' if working.stage else ''}."


def refusal_lines(store: RunStore) -> list[str]:
    """For each refused candidate why, in the words that the chat has for it."""
    verdicts = {item.candidate: item for item in store.records.verdicts()}
    lines = []
    for item in store.records.candidates():
        facts = refusal_facts(item, verdicts.get(item.sha256))
        words = "; ".join(f"{fact.name}: {fact.value}" for fact in facts)
        lines += [f"{item.id} was refused: {words}"] if facts else []
    return lines


def candidate_table(store: RunStore) -> Table:
    """One line a candidate in the order of drafting."""
    verdicts = {item.candidate: item for item in store.records.verdicts()}
    profiles = {item.candidate: item for item in store.records.profiles()}
    table = Table(box=None, pad_edge=False)
    for heading in ("round", "candidate", "parent", "coder", "strategy", "gate", "error", "time"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("candidate", "parent"))
    for item in store.records.candidates():
        verdict, profile = verdicts.get(item.sha256), profiles.get(item.sha256)
        time = "-"
        if profile is not None and profile.measured:
            time = show_us(profile.measurements[0].candidate.median_us)
        elif profile is not None:
            time = f"{show_us(profile.estimate.time_us)} estimated"
        table.add_row(
            str(item.round),
            item.id,
            (item.parent or "-")[:10],
            item.coder,
            item.strategy,
            "-" if verdict is None else verdict.gate,
            show_error(verdict.worst_error if verdict else None),
            time,
        )
    return table


def model_table(models: ModelsSection) -> Table:
    """What the models took: one line an agent, the total as the last."""
    table = Table(box=None, pad_edge=False)
    table.add_column("models")
    for heading in ("questions", "requests", "tokens in", "out", "cached", "USD", "s", "GPU s"):
        table.add_column(heading, justify="right")
    for row in usage_rows(models.by_agent, models.total):
        table.add_row(*(Text(cell) for cell in row))
    return table


def diagnosis_table(models: ModelsSection) -> Table:
    """What was made of each refused candidate, and by whom."""
    table = Table(box=None, pad_edge=False)
    for heading in ("refused", "round", "diagnosed by", "class", "then", "advice"):
        table.add_column(heading, overflow="fold")
    for found in models.diagnoses:
        table.add_row(*(Text(cell) for cell in diagnosis_cells(found)))
    return table
