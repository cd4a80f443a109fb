"""Which kernels did a night find for a model, and where in its folder do they lie?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentkernel.domain.night import ModelRow, Night
from agentkernel.domain.region import Kernel
from agentkernel.errors import RunNotFound
from agentkernel.tools.nights.record import JSON_NAME, NightFile, read_night_file

UNUSED = ("kept", "failed", "unreached")
"""Regions without a kernel to use. One that was withdrawn may have another in its place."""


@dataclass(frozen=True)
class Chosen:
    """The kernels of a model's form by path, and each use's own parameter names."""

    kernels: dict[str, Kernel]
    parameters: dict[str, tuple[str, ...]]


def kernels_of_night(folder: Path, model: str | None = None) -> Chosen:
    """What the night in `folder` handed over for `model` (its name in the zoo; None where the zoo
    has but one). Empty where a baseline was handed over.

    Raises RunNotFound where the folder holds no night, or not this model or its kernels.
    """
    record = read_night_file(folder)
    row = _row(record.night, model)
    kernels: dict[str, Kernel] = {}
    parameters: dict[str, tuple[str, ...]] = {}
    for region in record.night.regions if row.form.startswith("regions") else ():
        if region.status in UNUSED or region.sha256 is None or region.signature in row.dropped:
            continue
        for use in region.uses:
            if use.model == row.name:
                kernels[use.path] = _kernel(record, region.sha256, folder)
                parameters[use.path] = use.parameters
    return Chosen(kernels, parameters)


def _kernel(record: NightFile, sha256: str, folder: Path) -> Kernel:
    if sha256 not in record.kernels:
        raise RunNotFound(
            f"The night in {str(folder)!r} lacks kernel {sha256[:10]!r}. Expected it in "
            f"{JSON_NAME}. Next: 'agentkernel library show {sha256[:10]}'."
        )
    return record.kernels[sha256]


def _row(night: Night, model: str | None) -> ModelRow:
    rows = [row for row in night.models if model in (None, row.name)]
    if len(rows) != 1:
        names = ", ".join(row.name for row in night.models)
        what = "names no model" if model is None else f"has no model {model!r}"
        raise RunNotFound(
            f"The call {what} of night {night.id!r}. Expected one of: {names}. "
            "Next: pass name='...'."
        )
    return rows[0]
