"""`agentkernel batch`: optimization of a list of problems, or a nightly run over a model zoo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from agentkernel.cli.options import (
    NO_CONFIGURED,
    NO_DRAFTING,
    AsJson,
    Configured,
    Drafting,
    TargetName,
    TimeLimit,
    with_groups,
)
from agentkernel.cli.terminal import print_plain

if TYPE_CHECKING:
    from rich.table import Table

    from agentkernel.bench.batch import Row
    from agentkernel.cli.nightly.zoo import ZooFlags
    from agentkernel.domain.settings import Settings
    from agentkernel.workflows.events import Event
    from agentkernel.workflows.outcome import Result

ListFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE.yaml",
        help="'problems:' with files or 'file:' entries; or a zoo, 'models:', or a packaged one's "
        "name: tiny, transformers.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="A zoo's jobs on Ray: auto, local, ray://HOST:PORT."
    ),
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="A zoo's jobs at a time; one a GPU at least.")
]
Compare = Annotated[
    str | None,
    typer.Option(
        "--compare", help="An earlier night of the zoo: last (default), last-green, or an id."
    ),
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", help="Folder of a night's reports; ./agentkernel-nights/ZOO/ID."),
]
LibraryFile = Annotated[
    Path | None, typer.Option("--library", help="File of the verified kernels; the user's own.")
]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="MODEL", help="Of a zoo. May be repeated.")
]


@with_groups
def batch(
    list_file: ListFile,
    target: TargetName = None,
    drafting: Drafting = NO_DRAFTING,
    time: TimeLimit = None,
    ray: RayAddress = None,
    workers: Workers = None,
    compare: Compare = None,
    out: OutFolder = None,
    library: LibraryFile = None,
    only: Only = None,
    configured: Configured = NO_CONFIGURED,
    as_json: AsJson = False,
) -> None:
    """Optimise a list of problems, or the models of a zoo; the same call goes on after a kill."""
    from agentkernel.bench.batch import Runner, batch_exit_code, read_list, run_batch
    from agentkernel.cli.nightly.zoo import ZooFlags, is_zoo
    from agentkernel.cli.options import with_checked_models
    from agentkernel.cli.rendering.text import parse_seconds
    from agentkernel.cli.terminal import console, print_json
    from agentkernel.domain.errors import SettingError
    from agentkernel.storage.configuration import load_settings
    from agentkernel.tools.targets import find_target
    from agentkernel.workflows.approval import check_approval

    flags = {"target": target, **drafting.settings(), **configured.settings()}
    asked = ZooFlags(parse_seconds(time), ray, workers, compare, out, library, only or (), as_json)
    if is_zoo(list_file, asked.given()):
        run_nightly(list_file, asked, flags, configured)
    if asked.given() is not None:
        raise SettingError(
            f"{asked.given()} goes with a zoo, and {list_file.name} has no 'models:'. Next: leave "
            "it out, or name a zoo."
        )

    def settings_for(own: Mapping[str, object]) -> Settings:
        known = {key: value for key, value in own.items() if value is not None}
        overrides = configured.overrides or ()
        return with_checked_models(load_settings(configured.config, overrides, {**flags, **known}))

    settings = settings_for({})
    check_approval(settings, None)
    find_target(settings.target)
    problems = read_list(list_file)

    from agentkernel.workflows.optimize import resume, run

    folder = Path(settings.runs) / ".batch" / list_file.stem
    rows = run_batch(
        problems,
        settings_for,
        folder,
        Runner(run, resume),
        print_event if as_json else ignore_event,
        ignore_row if as_json else print_row,
    )
    if as_json:
        print_json({"rows": [row_values(row) for row in rows], "state": str(folder)})
    else:
        console().print(batch_table(rows))
    raise typer.Exit(batch_exit_code(rows))


def run_nightly(
    file: Path, asked: ZooFlags, flags: dict[str, object], configured: Configured
) -> NoReturn:
    """A night over the zoo in `file`; leaves with its exit code."""
    from agentkernel.cli.nightly.zoo import run_zoo, select_models, zoo_overrides
    from agentkernel.cli.options import with_checked_models
    from agentkernel.nightly.zoo.reader import read_zoo
    from agentkernel.storage.configuration import load_settings
    from agentkernel.workflows.approval import check_approval

    zoo = select_models(read_zoo(file), asked.only)
    target = flags["target"] or zoo.target
    own = [*zoo_overrides(zoo), *(configured.overrides or ())]
    settings = with_checked_models(
        load_settings(configured.config, own, {**flags, "target": target})
    )
    check_approval(settings, None)
    raise typer.Exit(run_zoo(zoo, settings, asked))


def print_event(event: Event) -> None:
    """One JSON line an event."""
    from agentkernel.cli.rendering.run import print_event as write

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
    from rich.table import Table

    from agentkernel.cli.rendering.text import show_error, show_ratio, show_share, show_us

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
    from agentkernel.cli.rendering.text import show_count, show_usd

    if not result.asked_models:
        return "-", "-"
    return show_count(result.tokens), show_usd(result.cost_usd, result.unpriced)
