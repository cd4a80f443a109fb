"""`agentkernel runs`, `show` and `report`: the list of runs, one of them, and its HTML page.

`report` also writes the page of a nightly run over a zoo.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkernel.cli.options import AsJson, ConfigFile, Overrides, RunName, Runs
from agentkernel.cli.terminal import print_plain
from agentkernel.domain.plain_text import plain, sentence
from agentkernel.storage.files import read_regular_text

if TYPE_CHECKING:
    from rich.table import Table

    from agentkernel.tools.run_store import RunStore
    from agentkernel.workflows.outcome import Result
    from agentkernel.workflows.report import ModelsSection


MOST_CORRUPT = 20
"""Folders that cannot be read of which each has a line of its own."""


def runs(
    runs_folder: Runs = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List the runs, oldest first."""
    from agentkernel.cli.options import runs_path
    from agentkernel.cli.terminal import console, print_json
    from agentkernel.tools.run_store import list_runs

    folder = runs_path(runs_folder, config, overrides)
    found = list_runs(folder)
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    if not found:
        print_plain(f"No runs in {str(folder)!r}. Next: agentkernel optimize FILE --target h100")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("run", "created", "problem", "target", "status"):
        table.add_column(heading, overflow="fold")
    corrupt = [item for item in found if item.error is not None]
    left_out = {item.id for item in corrupt[MOST_CORRUPT:]}
    for item in found:
        if item.id in left_out:
            continue
        table.add_row(item.id, item.created[:19], item.problem, item.target, item.status)
    console().print(table)
    if left_out:
        print_plain(f"{len(left_out)} more that cannot be read; --json names them.")


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
    from agentkernel.cli.options import runs_path
    from agentkernel.tools.run_store import read_run

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

    from agentkernel.workflows.outcome import Result
    from agentkernel.workflows.results import relocated_result

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
    from agentkernel.cli.terminal import print_json
    from agentkernel.workflows.models import models_section, recorded_attempts

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
    from agentkernel.cli.rendering.run import result_panel
    from agentkernel.cli.terminal import console
    from agentkernel.workflows.models import models_section, recorded_attempts

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

    from agentkernel.cli.rendering.text import show_error, show_us

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

    from agentkernel.workflows.report import usage_rows

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

    from agentkernel.workflows.report import diagnosis_cells

    table = Table(box=None, pad_edge=False)
    for heading in ("refused", "round", "diagnosed by", "class", "then", "advice"):
        table.add_column(heading, overflow="fold")
    for found in models.diagnoses:
        table.add_row(*(Text(cell) for cell in diagnosis_cells(found)))
    return table


PAGE_NAME = "report.html"
PAGE_MARK = '<p class="kicker">'
"""What every page has before its headline."""
NIGHTLY_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
"""A run's name begins with its problem's."""
RunOrNight = Annotated[
    str,
    typer.Argument(
        metavar="RUN|NIGHT",
        help="A run's name or folder, last, or a night's id, folder or night.json.",
    ),
]
PageFile = Annotated[
    Path | None,
    typer.Option(
        "--out", help="The page's file; report.html in the folder, night.html for a night."
    ),
]
LibraryFile = Annotated[
    Path | None,
    typer.Option("--library", metavar="PATH", help="Where a night's id is looked up; the user's."),
]


def report(
    name: RunOrNight = "last",
    out: PageFile = None,
    runs: Runs = None,
    library: LibraryFile = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Write the page of a run or of a night: one file of HTML that needs no network."""
    from agentkernel.cli.options import runs_path
    from agentkernel.cli.terminal import print_json
    from agentkernel.storage.files import make_folder, write_atomic
    from agentkernel.tools.own_files import require_generated

    given = Path(name)
    if is_nightly(given):
        page, usual = nightly_html(given)
    elif NIGHTLY_ID.fullmatch(name) and not given.exists():
        page, usual = stored_nightly_html(name, library)
    else:
        place = runs_path(runs, config, overrides)
        require_run_or_nightly(given, place)
        page, usual = run_html(place, name)
    # Not resolved: a link in its place would lead the write elsewhere.
    path = (out if out is not None else usual).absolute()
    make_folder(path.parent)
    if out is not None:
        require_generated(path, lambda text: PAGE_MARK in text)
    write_atomic(path, plain(page))
    if as_json:
        print_json({"page": str(path)})
    else:
        print_plain(path)


def is_nightly(path: Path) -> bool:
    """True for a file of JSON, and for a folder with a night's record."""
    return (path / "night.json").is_file() or (path.suffix == ".json" and path.is_file())


def require_run_or_nightly(path: Path, runs: Path) -> None:
    """Raises RunNotFound for a path that is neither a run's folder nor its name, or the beginning
    of one, in `runs`."""
    from agentkernel.domain.errors import RunNotFound
    from agentkernel.tools.run_store import run_folders

    is_path = path.exists() or path.suffix == ".json" or len(path.parts) != 1
    if not is_path or (path / "run.json").is_file():
        return
    if any(item.name.startswith(str(path)) for item in run_folders(runs)):
        return
    if path.is_dir():
        what = "holds no run and no night"
    else:
        what = "is no record of a night" if path.exists() else "does not exist"
    raise RunNotFound(
        f"{str(path)!r} {what}. Expected the folder of a run (it has run.json) or of a night (it "
        "has night.json). Next: agentkernel runs, or the folder that 'agentkernel batch' named."
    )


def nightly_html(path: Path) -> tuple[str, Path]:
    """The page of a night's record, and where it lies by default."""
    from agentkernel.nightly.page.files import read_night_file
    from agentkernel.nightly.page.pages import night_page, render

    found = read_night_file(path)
    page = night_page(found.night, found.comparison, found.history, found.kernels)
    folder = path if path.is_dir() else path.parent
    return render(page), folder / "night.html"


def stored_nightly_html(name: str, file: Path | None) -> tuple[str, Path]:
    """The page of the night `name` in the library, compared with the one before it, and where it
    lies by default. Raises RunNotFound."""
    from agentkernel.cli.nightly.zoo import kernels_of, nightly_folder
    from agentkernel.domain.errors import RunNotFound
    from agentkernel.nightly.library import Library, default_library
    from agentkernel.nightly.page.comparison import compare_nights
    from agentkernel.nightly.page.pages import night_page, render

    place = default_library() if file is None else file
    found = None
    if place.is_file():
        with Library(place) as library:
            found = library.night(name)
            if found is not None:
                history = [item for item in library.history(found.zoo) if item.id <= found.id]
                kernels = kernels_of(library, found)
                earlier = [item.id for item in history if item.id != found.id]
                before = library.night(earlier[-1]) if earlier else None
    if found is None:
        raise RunNotFound(
            f"No night {name!r} in the library {str(place)!r}. Expected the id of one that "
            "is over. Next: agentkernel batch ZOO.yaml, or name the file with --library."
        )
    page = night_page(found, compare_nights(before, found), history, kernels)
    return render(page), nightly_folder(found) / "night.html"


def run_html(runs: Path, name: str) -> tuple[str, Path]:
    """The page of a finished run, and where it lies by default. Raises RunNotFound."""
    from agentkernel.domain.errors import RunNotFound
    from agentkernel.nightly.page.pages import render, run_page
    from agentkernel.tools.certificate.record import read_certificate_file
    from agentkernel.tools.run_store import read_run
    from agentkernel.workflows.models import recorded_attempts
    from agentkernel.workflows.results import report_entry

    store = read_run(runs, name)
    try:
        file = store.folder / "certificate.json"
        if not file.is_file():
            raise RunNotFound(
                f"Run {store.id!r} has no certificate yet. Expected a finished run. "
                f"Next: agentkernel resume {store.id}"
            )
        sealed = read_certificate_file(file)
        if sealed.certificate is None:
            raise RunNotFound(
                f"{str(file)!r} is no certificate: {sealed.problem}. Expected what optimize wrote. "
                f"Next: agentkernel resume {store.id}"
            )
        entries = [report_entry(item) for item in recorded_attempts(store)]
        page = run_page(sealed.certificate, entries, edited=sealed.state == "invalid")
        return render(page), store.folder / PAGE_NAME
    finally:
        store.close()
