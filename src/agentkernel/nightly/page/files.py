"""Which files does a night leave behind?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agentkernel.domain.night import Comparison, NightlyRun
from agentkernel.domain.plain_text import plain
from agentkernel.domain.region import Kernel
from agentkernel.nightly.page.costs import model_costs
from agentkernel.nightly.page.folds import shown_kernels
from agentkernel.nightly.page.junit import junit_xml
from agentkernel.nightly.page.markdown import markdown
from agentkernel.nightly.page.merged import merged_regions
from agentkernel.nightly.page.page import night_page, render
from agentkernel.nightly.page.record import JSON_NAME, NightFile
from agentkernel.nightly.page.tables import models_csv, regions_csv
from agentkernel.storage.atomic import make_folder, write_atomic
from agentkernel.tools.ours import is_json_with, require_all_generated, require_generated


class NightPaths(NamedTuple):
    """Where each of them lies."""

    html: Path
    markdown: Path
    junit: Path
    models_csv: Path
    regions_csv: Path
    json: Path


def night_paths(folder: Path) -> NightPaths:
    """The files of a night in `folder`."""
    return NightPaths(
        folder / "night.html",
        folder / "night.md",
        folder / "junit.xml",
        folder / "models.csv",
        folder / "regions.csv",
        folder / JSON_NAME,
    )


def require_free(folder: Path) -> None:
    """Raise OutputError where a night would write over somebody's file in `folder`."""
    paths = night_paths(folder)
    require_generated(paths.json, is_json_with("night", "kernels"))
    require_all_generated(paths, paths.json.is_file())


def write_night(
    folder: Path,
    night: NightlyRun,
    comparison: Comparison,
    history: Sequence[NightlyRun],
    kernels: Mapping[str, Kernel],
) -> NightPaths:
    """The page, the comment, the test report, the tables and the record, into `folder`.

    `history`: the nights of this zoo, with or without this one; `kernels` by SHA-256, parents among
    them where they are known. Raises OutputError.
    """
    make_folder(folder)
    paths = night_paths(folder)
    record = _record(night, comparison, history, kernels)
    write_atomic(paths.html, plain(render(night_page(night, comparison, history, kernels))))
    write_atomic(paths.markdown, plain(markdown(night, comparison)))
    write_atomic(paths.junit, plain(junit_xml(night, comparison)))
    write_atomic(paths.models_csv, plain(models_csv(night)))
    write_atomic(paths.regions_csv, plain(regions_csv(night)))
    write_atomic(paths.json, record.model_dump_json(indent=1) + "\n")
    return paths


def _record(
    night: NightlyRun,
    comparison: Comparison,
    history: Sequence[NightlyRun],
    kernels: Mapping[str, Kernel],
) -> NightFile:
    shown = shown_kernels(night, kernels)
    wanted = {kernel.sha256 for _, kernel in shown} | {row.parent for row, _ in shown}
    return NightFile(
        night=night,
        comparison=comparison,
        history=tuple(_in_short(item, night) for item in history if item.id != night.id),
        costs=tuple(model_costs(night).values()),
        merged=merged_regions(night),
        kernels={sha256: kernel for sha256, kernel in kernels.items() if sha256 in wanted},
    )


def _in_short(item: NightlyRun, night: NightlyRun) -> NightlyRun:
    """An earlier night with those of its regions alone that changed the kernel of one of ours."""
    ours = {row.signature for row in night.regions}
    rows = [
        row
        for row in item.regions
        if row.signature in ours and row.sha256 is not None and row.status in ("new", "retuned")
    ]
    return item.model_copy(update={"regions": tuple(rows)})
