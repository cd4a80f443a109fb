"""Which kernels did a night find for a model, and where in its folder do they lie?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.certificate import Certificate
from agentkernel.domain.errors import KernelRefused, RunNotFound
from agentkernel.domain.night import ModelRow, NightlyRun
from agentkernel.domain.region import Kernel
from agentkernel.nightly.page.record import JSON_NAME, NightFile, read_night_file
from agentkernel.tools.certificate.signing import signature_state

UNUSED = ("kept", "failed", "unreached")
"""Regions without a kernel to use. One that was withdrawn may have another in its place."""


@dataclass(frozen=True)
class NightKernels:
    """The kernels of a model's form by path, and each use's own parameter names."""

    kernels: dict[str, Kernel]
    parameters: dict[str, tuple[str, ...]]


def kernels_of_night(folder: Path, model: str | None = None) -> NightKernels:
    """What the night in `folder` handed over for `model` (its name in the zoo; None where the zoo
    has but one). Empty where a baseline was handed over.

    Raises RunNotFound where the folder holds no night, or not this model or its kernels,
    KernelRefused where a kernel's certificate is not what was signed.
    """
    record = read_night_file(folder)
    written = _certificates(folder)
    row = _row(record.night, model)
    kernels: dict[str, Kernel] = {}
    parameters: dict[str, tuple[str, ...]] = {}
    for region in record.night.regions if row.form.startswith("regions") else ():
        if region.status in UNUSED or region.sha256 is None or region.signature in row.dropped:
            continue
        for use in region.uses:
            if use.model == row.name:
                kernel = _kernel(record, region.sha256, folder)
                _require_signed(kernel, written.get(region.sha256), folder)
                kernels[use.path] = kernel
                parameters[use.path] = use.parameters
    return NightKernels(kernels, parameters)


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
