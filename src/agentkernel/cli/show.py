"""`agentkernel show`: what a run did, and what came of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.options import AsJson, ConfigFile, Overrides, RunName, Runs
from agentkernel.domain.plain_text import plain, sentence
from agentkernel.storage.disk import read_regular_text

if TYPE_CHECKING:
    from rich.table import Table

    from agentkernel.tools.store import RunStore
    from agentkernel.workflows.outcome import Result
    from agentkernel.workflows.report_models import ModelsSection

Source = Annotated[bool, typer.Option("--source", help="Print the drop-in's source alone.")]


def show(
    run: RunName = "last",
    source: Source = False,
    runs: Runs = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a run: its candidates, their verdicts and times, and its result."""
    from agentkernel.cli.folder import runs_path
    from agentkernel.tools.store import read_run

    store = read_run(runs_path(runs, config, overrides), run)
    try:
        result = read_result(store)
        if source:
            print_source(store, result)
        elif as_json:
            print_everything(store, result)
        else:
            print_screen(store, result)
    finally:
        store.close()


def read_result(store: RunStore) -> Result | None:
    """The run's result, None while it is unfinished or where the file is damaged."""
    from pydantic import ValidationError

    from agentkernel.workflows.handover import relocated_result
    from agentkernel.workflows.outcome import Result

    try:
        found = Result.model_validate_json(read_regular_text(store.result_path))
        return relocated_result(store, found)
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def print_source(store: RunStore, result: Result | None) -> None:
    """The drop-in of a finished run."""
    from pathlib import Path

    from agentkernel.domain.errors import RunNotFound, one_line

    if result is None or result.candidate is None:
        why = "is unfinished" if result is None else f"kept a baseline: {result.reason}"
        raise RunNotFound(
            sentence(f"Run {store.id!r} has no drop-in, it {why}") + " Next: agentkernel runs"
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


def print_everything(store: RunStore, result: Result | None) -> None:
    """One object: manifest, candidates, verdicts, profiles, result."""
    from agentkernel.cli.output import print_json
    from agentkernel.workflows.model_accounts import models_section, recorded_attempts

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
    from agentkernel.cli.output import console
    from agentkernel.cli.rendering.panel import result_panel
    from agentkernel.workflows.model_accounts import models_section, recorded_attempts

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
    if result is None:
        screen.print(f"Unfinished. Next: agentkernel resume {store.id}")
    else:
        screen.print(result_panel(result))


def refusal_lines(store: RunStore) -> list[str]:
    """For each refused candidate why, in the words that the chat has for it."""
    from agentkernel.agents.evidence import refusal_facts

    verdicts = {item.candidate: item for item in store.records.verdicts()}
    lines = []
    for item in store.records.candidates():
        facts = refusal_facts(item, verdicts.get(item.sha256))
        words = "; ".join(f"{fact.name}: {fact.value}" for fact in facts)
        lines += [f"{item.id} was refused: {words}"] if facts else []
    return lines


def candidate_table(store: RunStore) -> Table:
    """One line a candidate in the order of drafting."""
    from rich.table import Table

    from agentkernel.cli.rendering.quantities import show_error, show_us

    verdicts = {item.candidate: item for item in store.records.verdicts()}
    profiles = {item.candidate: item for item in store.records.profiles()}
    table = Table(box=None, pad_edge=False)
    for heading in ("round", "candidate", "parent", "coder", "strategy", "gate", "error", "time"):
        table.add_column(heading, overflow="fold")
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
    from rich.table import Table
    from rich.text import Text

    from agentkernel.workflows.report_models import usage_rows

    table = Table(box=None, pad_edge=False)
    table.add_column("models")
    for heading in ("questions", "requests", "tokens in", "out", "cached", "USD", "s", "GPU s"):
        table.add_column(heading, justify="right")
    for row in usage_rows(models.by_agent, models.total):
        table.add_row(*(Text(cell) for cell in row))
    return table


def diagnosis_table(models: ModelsSection) -> Table:
    """What was made of each refused candidate, and by whom."""
    from rich.table import Table
    from rich.text import Text

    from agentkernel.workflows.report_models import diagnosis_cells

    table = Table(box=None, pad_edge=False)
    for heading in ("refused", "round", "diagnosed by", "class", "then", "advice"):
        table.add_column(heading, overflow="fold")
    for found in models.diagnoses:
        table.add_row(*(Text(cell) for cell in diagnosis_cells(found)))
    return table
