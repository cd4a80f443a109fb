"""`agentkernel report`: what does a run, or a night over a zoo, look like as one page?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkernel.cli.options import AsJson, ConfigFile, Overrides, Runs

PAGE_NAME = "report.html"
RunOrNight = Annotated[
    str,
    typer.Argument(
        metavar="RUN|NIGHT", help="A run's name or folder, last, or a night's folder or night.json."
    ),
]
PageFile = Annotated[
    Path | None,
    typer.Option(
        "--out", help="The page's file; report.html in the folder, night.html for a night."
    ),
]


def report(
    name: RunOrNight = "last",
    out: PageFile = None,
    runs: Runs = None,
    overrides: Overrides = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Write the page of a run or of a night: one file of HTML that needs no network."""
    from agentkernel.cli.folder import runs_path
    from agentkernel.cli.output import print_json
    from agentkernel.tools.atomic import make_folder, write_atomic

    given = Path(name)
    if is_night(given):
        page, usual = night_html(given)
    else:
        page, usual = run_html(runs_path(runs, config, overrides), name)
    path = (out if out is not None else usual).resolve()
    make_folder(path.parent)
    write_atomic(path, page)
    if as_json:
        print_json({"page": str(path)})
    else:
        print(path)


def is_night(path: Path) -> bool:
    """True for a file of JSON, and for a folder with a night's record."""
    return (path / "night.json").is_file() or (path.suffix == ".json" and path.is_file())


def night_html(path: Path) -> tuple[str, Path]:
    """The page of a night's record, and where it lies by default."""
    from agentkernel.tools.nights.files import read_night_file
    from agentkernel.tools.nights.page import night_page, render

    found = read_night_file(path)
    page = night_page(found.night, found.comparison, found.history, found.kernels)
    folder = path if path.is_dir() else path.parent
    return render(page), folder / "night.html"


def run_html(runs: Path, name: str) -> tuple[str, Path]:
    """The page of a finished run, and where it lies by default. Raises RunNotFound."""
    from agentkernel.errors import RunNotFound
    from agentkernel.tools.certificate import read_sealed
    from agentkernel.tools.nights.page import render
    from agentkernel.tools.nights.run_page import run_page
    from agentkernel.tools.report import Entry
    from agentkernel.tools.store import open_run
    from agentkernel.workflows.model_accounts import recorded_attempts

    store = open_run(runs, name)
    try:
        file = store.folder / "certificate.json"
        if not file.is_file():
            raise RunNotFound(
                f"Run {store.id!r} has no certificate yet. Expected a finished run. "
                f"Next: agentkernel resume {store.id}"
            )
        sealed = read_sealed(file)
        if sealed.certificate is None:
            raise RunNotFound(
                f"{str(file)!r} is no certificate: {sealed.problem}. Expected what optimize wrote. "
                f"Next: agentkernel resume {store.id}"
            )
        entries = [
            Entry(
                candidate=item.candidate,
                verdict=item.verdict,
                profile=item.profile,
                aside=item.aside,
            )
            for item in recorded_attempts(store)
        ]
        page = run_page(sealed.certificate, entries, edited=sealed.state == "invalid")
        return render(page), store.folder / PAGE_NAME
    finally:
        store.close()
