"""`agentkernel report`: the HTML page of a run, or of a nightly run over a zoo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from agentkernel.cli.configuration import runs_path
from agentkernel.cli.nightly.zoo import kernels_of, nightly_folder
from agentkernel.cli.options import ReportFlags
from agentkernel.cli.terminal import print_json, print_plain
from agentkernel.domain.errors import RunNotFound
from agentkernel.domain.plain_text import plain
from agentkernel.nightly.library import Library, default_library
from agentkernel.nightly.page.comparison import compare_nights
from agentkernel.nightly.page.files import read_night_file
from agentkernel.nightly.page.pages import night_page, render, run_page
from agentkernel.storage.files import make_folder, write_atomic
from agentkernel.tools.certificate.record import read_certificate_file
from agentkernel.tools.command_lines import resume
from agentkernel.tools.own_files import require_generated
from agentkernel.tools.run_store import read_run, run_folders
from agentkernel.workflows.models import recorded_attempts
from agentkernel.workflows.results import report_entry

if TYPE_CHECKING:
    pass


PAGE_NAME = "report.html"
PAGE_MARK = '<p class="kicker">'
"""What every page has before its headline."""
NIGHTLY_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
"""A run's name begins with its problem's."""


def report(flags: ReportFlags) -> None:
    """`agentkernel report`."""
    given = Path(flags.name)
    if is_nightly(given):
        page, usual = nightly_html(given)
    elif NIGHTLY_ID.fullmatch(flags.name) and not given.exists():
        page, usual = stored_nightly_html(flags.name, flags.library)
    else:
        place = runs_path(flags.runs, flags.settings)
        require_run_or_nightly(given, place)
        page, usual = run_html(place, flags.name)
    # Not resolved: a link in its place would lead the write elsewhere.
    path = (flags.out if flags.out is not None else usual).absolute()
    make_folder(path.parent)
    if flags.out is not None:
        require_generated(path, lambda text: PAGE_MARK in text)
    write_atomic(path, plain(page))
    if flags.as_json:
        print_json({"page": str(path)})
    else:
        print_plain(path)


def is_nightly(path: Path) -> bool:
    """True for a file of JSON, and for a folder with a night's record."""
    return (path / "night.json").is_file() or (path.suffix == ".json" and path.is_file())


def require_run_or_nightly(path: Path, runs: Path) -> None:
    """Raises RunNotFound for a path that is neither a run's folder nor its name, or the beginning
    of one, in `runs`."""
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
    found = read_night_file(path)
    page = night_page(found.night, found.comparison, found.history, found.kernels)
    folder = path if path.is_dir() else path.parent
    return render(page), folder / "night.html"


def stored_nightly_html(name: str, file: Path | None) -> tuple[str, Path]:
    """The page of the night `name` in the library, compared with the one before it, and where it
    lies by default. Raises RunNotFound."""
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
    store = read_run(runs, name)
    try:
        file = store.folder / "certificate.json"
        if not file.is_file():
            raise RunNotFound(
                f"Run {store.id!r} has no certificate yet. Expected a finished run. "
                f"Next: {resume(store.folder)}"
            )
        sealed = read_certificate_file(file)
        if sealed.certificate is None:
            raise RunNotFound(
                f"{str(file)!r} is no certificate: {sealed.problem}. Expected what optimize wrote. "
                f"Next: {resume(store.folder)}"
            )
        entries = [report_entry(item) for item in recorded_attempts(store)]
        page = run_page(sealed.certificate, entries, edited=sealed.state == "invalid")
        return render(page), store.folder / PAGE_NAME
    finally:
        store.close()
