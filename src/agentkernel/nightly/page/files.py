"""Files of a nightly run: page, Markdown comment, JUnit XML, CSV tables, and `night.json`.

`night.json` holds all that the page is made from, and names the kernels handed over for a
model, each checked against its signed certificate when it is read for use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from pydantic import ConfigDict, Field, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.errors import KernelRefused, RunNotFound, cause_of, one_line
from agentkernel.domain.formatting import DASH, count, ratio_text, us
from agentkernel.domain.nightly import (
    Change,
    ChangeKind,
    Comparison,
    ModelRow,
    NightlyRun,
    RegionRow,
)
from agentkernel.domain.plain_text import plain, sentence
from agentkernel.domain.region import Basis, Kernel
from agentkernel.nightly.page.comparison import change_groups, change_text, headline
from agentkernel.nightly.page.figures import (
    BASELINES,
    CUT_SHORT,
    MergedRegions,
    ModelCost,
    caption,
    dropped_text,
    form_time_us,
    lost_text,
    mean_ratio,
    merged_regions,
    model_costs,
    region_label,
    speedup_ratio,
)
from agentkernel.nightly.page.pages import budget_words, night_page, render
from agentkernel.nightly.page.tables import models_csv, region_order, regions_csv, shown_kernels
from agentkernel.nightly.scheduler.region_outcomes import placements, uses_by_model
from agentkernel.storage.files import make_folder, read_regular_text, write_atomic
from agentkernel.tools.certificate.signing import signature_state
from agentkernel.tools.own_files import is_json_with, require_all_generated, require_generated
from agentkernel.workflows.report import cell, table

JSON_NAME = "night.json"


class NightFile(Frozen):
    """`night.json`: all that the page is made from, so that it can be made again. `history` keeps
    of earlier nights what the trend and the lineage need; `kernels` those that the page shows, by
    SHA-256. `costs` and `merged` follow from the night; they are there for other programs."""

    # What a later version adds for its page is no reason not to read the rest.
    model_config = ConfigDict(extra="ignore")

    format: Literal[1] = 1
    night: NightlyRun
    comparison: Comparison
    history: tuple[NightlyRun, ...] = ()
    kernels: dict[str, Kernel] = Field(default_factory=dict)
    costs: tuple[ModelCost, ...] = ()
    merged: MergedRegions | None = None


def read_night_file(path: Path) -> NightFile:
    """`night.json`, or the folder that it lies in. Raises RunNotFound."""
    file = path / JSON_NAME if path.is_dir() else path
    try:
        return NightFile.model_validate_json(read_regular_text(file, typed=True))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        what = "cannot be read" if isinstance(error, OSError) else "is no record of a night"
        why = getattr(error, "strerror", None) or one_line(error, 120)
        raise RunNotFound(
            f"{str(file)!r} {what}: {why}. Expected the {JSON_NAME} that "
            "'agentkernel batch ZOO.yaml' writes. Next: name its folder."
        ) from error


UNUSED = ("kept", "failed", "unreached")
"""Regions without a kernel to use. One that was withdrawn may have another in its place."""


@dataclass(frozen=True)
class NightKernels:
    """The kernels of a model's form by path, and each use's own parameter names; `nothing` says in
    one line why there are none."""

    kernels: dict[str, Kernel]
    parameters: dict[str, tuple[str, ...]]
    nothing: str = ""


def refuse_night(given: str | Path, where: str = "") -> None:
    """Raise RunNotFound where `given` is a night's folder, which holds the kernels of many runs.
    `where` says in what the call is made that takes one."""
    place = Path(given)
    if (place / JSON_NAME).is_file() or place.name == JSON_NAME:
        raise RunNotFound(
            f"{str(given)!r} is a night. Expected a run. Next: {where}agentkernel.apply(model, "
            f"{str(given)!r}, name=...) with the model's name in the zoo."
        )


def kernels_of_night(folder: Path, model: str | None = None) -> NightKernels:
    """What the night in `folder` handed over for `model` (its name in the zoo; None where the zoo
    has but one). Empty where a baseline was handed over.

    Raises RunNotFound where the folder holds no night, or not this model or its kernels,
    KernelRefused where a kernel's certificate is not what was signed.
    """
    record = read_night_file(folder)
    written = _certificates(folder)
    row = _row(record.night, model)
    found = {
        region.signature: region.sha256
        for region in record.night.regions
        if region.status not in UNUSED and region.sha256 is not None
    }
    uses = uses_by_model(record.night.regions).get(row.name, [])
    kernels: dict[str, Kernel] = {}
    parameters: dict[str, tuple[str, ...]] = {}
    for use, signature in placements([item for item in uses if item.signature in found]):
        in_parts = row.form == "one-region" and use.path != ""
        if row.form in BASELINES or signature in row.dropped or in_parts:
            continue
        kernels[use.path] = _kernel(record, found[signature], folder)
        _require_signed(kernels[use.path], written.get(found[signature]), folder)
        parameters[use.path] = use.parameters
    return NightKernels(kernels, parameters, "" if kernels else _nothing(record.night, row))


def _nothing(night: NightlyRun, row: ModelRow) -> str:
    """Why the night has no kernel for the model of `row`."""
    name = f"No kernel was put in: model {row.name!r}"
    if row.error is not None:
        return sentence(f"{name} failed in night {night.id!r}: {cause_of(row.error)}")
    kept = f"kept {row.form}" if row.form in BASELINES else "handed no kernel over"
    why = f": {row.why}" if row.why else ""
    return sentence(f"{name}: night {night.id!r} {kept}{why}")


def _kernel(record: NightFile, sha256: str, folder: Path) -> Kernel:
    if sha256 not in record.kernels:
        raise RunNotFound(
            f"The night in {str(folder)!r} lacks kernel {sha256[:10]!r}. Expected it in "
            f"{JSON_NAME}. Next: 'agentkernel library show {sha256[:10]}'."
        )
    return record.kernels[sha256]


def _certificates(folder: Path) -> dict[str, object]:
    """The certificates by their kernels' SHA-256, as the file has them: fields that a version adds
    to Certificate are not under the signatures of before."""
    file = folder / JSON_NAME if folder.is_dir() else folder
    kernels = json.loads(file.read_text(encoding="utf-8")).get("kernels", {})
    return {sha256: kernel["certificate"] for sha256, kernel in kernels.items()}


def _require_signed(kernel: Kernel, written: object, folder: Path) -> None:
    """Raise KernelRefused unless a signature stands under this very certificate."""
    name = f"Kernel {kernel.sha256[:10]!r} of the night in {str(folder)!r}"
    if kernel.certificate.signature is None:
        why = kernel.certificate.unsigned or "no signature is there"
        raise KernelRefused(
            f"{name} is not signed: {why}. Expected the signature that its run made. "
            "Next: optimize the region again where a signing key can be kept."
        )
    if not isinstance(written, dict) or not _is_as_signed(kernel.certificate, written):
        raise KernelRefused(
            f"{name} has a certificate that was changed: its signature does not fit. Expected it "
            "as its run signed it. Next: take the night's own record, or run the night again."
        )


def _is_as_signed(certificate: Certificate, written: Mapping[str, object]) -> bool:
    if signature_state(written) != "valid":
        return False
    try:
        return Certificate.model_validate_json(json.dumps(written)) == certificate
    except ValidationError:
        return False


def _row(night: NightlyRun, model: str | None) -> ModelRow:
    rows = [row for row in night.models if model in (None, row.name)]
    if len(rows) != 1:
        names = ", ".join(row.name for row in night.models)
        what = "names no model" if model is None else f"has no model {model!r}"
        raise RunNotFound(
            f"The call {what} of night {night.id!r}. Expected one of: {names}. "
            "Next: pass name='...'."
        )
    return rows[0]


FAILURES: tuple[ChangeKind, ...] = ("withdrawn", "failed_to_verify", "regression")
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, section 2.2: https://www.w3.org/TR/xml/#charsets"""


class _Case(NamedTuple):
    name: str
    text: str
    seconds: float = 0.0
    unreached: bool = False


def junit_xml(night: NightlyRun, comparison: Comparison) -> str:
    """A test case a model and a region: a regression or what does not verify is a failure, a model
    that raised an error, a region that was not reached skipped."""
    found: dict[str, list[Change]] = {}
    for change in comparison.changes:
        found.setdefault(change.what, []).append(change)
    models = [_Case(row.name, _model_text(row)) for row in night.models]
    regions = [
        _Case(region_label(row), _region_text(row), row.spent_s, row.status == "unreached")
        for row in region_order(night)
    ]
    known = {"gpu": night.gpu, "target": night.target, **night.versions.model_dump()}
    root = Element("testsuites", name=f"agentkernel {night.zoo}")
    for kind, cases in (("models", models), ("regions", regions)):
        suite = SubElement(root, "testsuite", name=kind, timestamp=night.started[:19])
        properties = SubElement(suite, "properties")
        for key, value in known.items():
            if value is not None:
                SubElement(properties, "property", name=key, value=str(value))
        for item in cases:
            place, seconds = f"{night.zoo}.{kind}", f"{item.seconds:.3f}"
            case = SubElement(suite, "testcase", classname=place, name=item.name, time=seconds)
            _told(case, found.get(item.name, ()))
            if item.unreached:
                SubElement(case, "skipped", message="the budget was spent before it")
            SubElement(case, "system-out").text = item.text
        _count(suite)
    _count(root)
    indent(root)
    text = FORBIDDEN.sub("\ufffd", tostring(root, "unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _told(case: Element, changes: Iterable[Change]) -> None:
    """The worst of what is to be told, the first alone: a case has one outcome."""
    for change in changes:
        tag = "error" if change.kind == "model_failed" else "failure"
        if tag == "error" or change.kind in FAILURES:
            text = change_text(change)
            words = " ".join(text.split())[:300]
            SubElement(case, tag, type=change.kind, message=words).text = text
            return


def _model_text(row: ModelRow) -> str:
    gained = ratio_text(speedup_ratio(row))
    return f"{row.form}, {us(form_time_us(row))}, {gained} ({row.basis})"


def _region_text(row: RegionRow) -> str:
    kernel = f", {us(row.time_us)} ({row.basis})" if row.time_us is not None else ""
    return f"{row.status}{kernel}, {row.shapes}"


def _count(element: Element) -> None:
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(key, str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")


MOST_MODELS, MOST_CHANGES = 40, 5


def markdown(night: NightlyRun, comparison: Comparison) -> str:
    """Headline, changes, one short table for what was measured and one for what was estimated."""
    lines = [f"### {cell(night.zoo)}: {headline(comparison)}", ""]
    groups = change_groups(night, comparison, MOST_CHANGES)
    for group in groups:
        lines.append(f"**{group.title}**")
        lines += [f"- {cell(line.what)}: {cell(line.text)}" for line in group.lines]
        lines += [f"- and {group.more} more", ""] if group.more else [""]
    if comparison.against is None:
        lines += ["No earlier night to compare with.", ""]
    elif not groups:
        lines += [f"Nothing changed beyond noise since night {cell(comparison.against)}.", ""]
    for basis in ("measured", "estimated"):
        lines += _models(night, basis)
    merged = merged_regions(night).words
    lines += [merged, ""] if merged else []
    lost = [f"- {cell(jobs)}: {cell(why)}" for jobs, why in lost_text(night.lost)]
    lines += ["**Jobs that were cut off**", *lost, ""] if lost else []
    return "\n".join([*lines, budget_words(night), ""])


def _models(night: NightlyRun, basis: Basis) -> Iterator[str]:
    rows = [row for row in night.models if row.basis == basis]
    if not rows:
        return
    mean = ratio_text(mean_ratio(rows, basis))
    over = "the faster of eager and torch.compile" if basis == "measured" else "eager"
    mark = "" if basis == "measured" else " (estimated)"
    yield f"{cell(caption(night, basis))}. Geometric mean {mean} over {over}{mark}."
    yield ""
    headings = ("model", "runs as", f"over {over}{mark}", f"time{mark}", f"cost of 1%{mark}")
    costs = model_costs(night)
    cells = [_cells(row, costs.get(row.name)) for row in rows[:MOST_MODELS]]
    yield from table((*headings, "outputs"), cells)
    yield ""
    notes = [
        f"- {cell(row.name)}: {cell('; '.join([*filter(None, [row.why]), *dropped_text(row)]))}"
        for row in rows[:MOST_MODELS]
        if row.left_out or row.form == "one-region" or CUT_SHORT in row.why
    ]
    yield from ((*notes, "") if notes else ())
    if len(rows) > MOST_MODELS:
        yield from (f"And {count(len(rows) - MOST_MODELS, 'more model')} in models.csv.", "")


def _cells(row: ModelRow, cost: ModelCost | None) -> tuple[str, ...]:
    if row.error is not None:
        return (cell(row.name), "failed", DASH, DASH, DASH, cell(row.error)[:120])
    outputs = {True: "verified", False: "wrong", None: DASH}[row.verified]
    return (
        cell(row.name),
        row.form,
        ratio_text(speedup_ratio(row)),
        us(form_time_us(row)),
        cost.text if cost is not None else DASH,
        outputs,
    )


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
    return item.evolve(regions=tuple(rows))
