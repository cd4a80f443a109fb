"""`agentkernel batch`: optimization of a list of problems, or a nightly run over a model zoo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.table import Table

from agentkernel.bench.batch import Row, Runner, batch_exit_code, read_list, run_batch
from agentkernel.cli.configuration import settings_from, with_checked_models
from agentkernel.cli.console import console
from agentkernel.cli.nightly.options import BatchFlags
from agentkernel.cli.nightly.zoo import ZooFlags, is_zoo, run_zoo, select_models, zoo_overrides
from agentkernel.cli.options import (
    Configured,
    settings_of,
)
from agentkernel.cli.rendering.live import counting
from agentkernel.cli.rendering.run import print_event as write
from agentkernel.cli.rendering.text import (
    parse_seconds,
    show_count,
    show_error,
    show_ratio,
    show_share,
    show_us,
    show_usd,
)
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.domain.errors import SettingError
from agentkernel.nightly.zoo.reader import read_zoo
from agentkernel.nightly.zoo.resolving import resolve_models
from agentkernel.storage.configuration import load_settings
from agentkernel.tools.targets import find_target
from agentkernel.workflows.approval import check_approval

if TYPE_CHECKING:
    from agentkernel.domain.settings import Settings
    from agentkernel.workflows.events import Event
    from agentkernel.workflows.outcome import Result


def batch(flags: BatchFlags) -> None:
    """`agentkernel batch`."""
    values = settings_of(flags)
    asked = ZooFlags(
        parse_seconds(flags.time),
        flags.ray,
        flags.workers,
        flags.compare,
        flags.out,
        flags.library,
        flags.only or (),
        flags.as_json,
    )
    if is_zoo(flags.list_file, asked.given()):
        run_nightly(flags.list_file, asked, values, flags.configured)
    if asked.given() is not None:
        raise SettingError(
            f"{asked.given()} goes with a zoo, and {flags.list_file.name} has no 'models:'. "
            "Next: leave it out, or name a zoo."
        )

    def settings_for(own: Mapping[str, object]) -> Settings:
        known = {key: value for key, value in own.items() if value is not None}
        return with_checked_models(settings_from(flags.configured, {**values, **known}))

    settings = settings_for({})
    check_approval(settings, None)
    find_target(settings.target)
    problems = read_list(flags.list_file)

    from agentkernel.workflows.optimize import resume, run

    folder = Path(settings.runs) / ".batch" / flags.list_file.stem
    with counting("batch", silent=flags.as_json):
        rows = run_batch(
            problems,
            settings_for,
            folder,
            Runner(run, resume),
            print_event if flags.as_json else ignore_event,
            ignore_row if flags.as_json else print_row,
        )
    if flags.as_json:
        print_json({"rows": [row_values(row) for row in rows], "state": str(folder)})
    else:
        console().print(batch_table(rows))
    raise typer.Exit(batch_exit_code(rows))


def run_nightly(
    file: Path, asked: ZooFlags, values: dict[str, object], configured: Configured
) -> NoReturn:
    """A night over the zoo in `file`; leaves with its exit code."""
    zoo = select_models(read_zoo(file), asked.only)
    target = values["target"] or zoo.target
    own = [*zoo_overrides(zoo), *(configured.overrides or ())]
    settings = with_checked_models(
        load_settings(configured.config, own, {**values, "target": target})
    )
    check_approval(settings, None)
    resolve_models(zoo)
    raise typer.Exit(run_zoo(zoo, settings, asked))


def print_event(event: Event) -> None:
    """One JSON line an event."""
    write(event)


def ignore_event(event: Event) -> None:
    """Nothing: a row is printed when its problem is done."""


def ignore_row(row: Row) -> None:
    """Nothing: the rows come at the end."""


def print_row(row: Row) -> None:
    """One line when a problem is done."""
    why = row.error or (row.result.reason if row.result else "")
    print_plain(f"{Path(row.file).name}: {row.status}: {why}")


def row_values(row: Row) -> dict[str, object]:
    """A row for JSON: status, then all there is."""
    return {"status": row.status, **row.model_dump(mode="json")}


def batch_table(rows: tuple[Row, ...]) -> Table:
    """One line a problem."""

    table = Table(box=None, pad_edge=False)
    for heading in ("problem", "status"):
        table.add_column(heading)
    asked = any(row.result is not None and row.result.asked_models for row in rows)
    models = ("tokens", "USD") if asked else ()
    for heading in ("x eager", "x compile", "roofline", "error", "time", *models):
        table.add_column(heading, justify="right")
    for row in rows:
        result = row.result
        if result is None:
            table.add_row(Path(row.file).name, row.status)
            continue
        measured = result.time_us is not None
        estimate = f"{show_us(result.estimated_time_us)} estimated"
        table.add_row(
            Path(row.file).name,
            row.status,
            show_ratio(result.speedup_vs_eager),
            show_ratio(result.speedup_vs_compile),
            show_share(result.roofline_fraction),
            show_error(result.error_vs_oracle),
            show_us(result.time_us) if measured else estimate,
            *(model_cells(result) if asked else ()),
        )
    return table


def model_cells(result: Result) -> tuple[str, str]:
    """What the models of a row took; dashes where none was asked."""
    if not result.asked_models:
        return "-", "-"
    return show_count(result.tokens), show_usd(result.cost_usd, result.unpriced)
