"""How does a kernel become a row of the library, and when does a row stand for no kernel?"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, replace

from pydantic import ValidationError

from agentkernel.domain.certificate import Certificate
from agentkernel.domain.region import Basis, Kernel, KernelKey
from agentkernel.nightly.library.evidence import OTHER_CERTIFICATE as OTHER_CERTIFICATE
from agentkernel.nightly.library.evidence import OTHER_SOURCE as OTHER_SOURCE
from agentkernel.nightly.library.evidence import UNREADABLE_ROW as UNREADABLE_ROW
from agentkernel.nightly.library.evidence import certificate_mismatch

KEY_COLUMNS = tuple(KernelKey.model_fields)
LINE_COLUMNS = (
    "id",
    "sha256",
    *KEY_COLUMNS,
    "problem",
    "certificate",
    "run",
    "created",
    "basis",
    "speedup",
    "speedup_low",
    "time_us",
    "baseline_us",
    "verified",
    "withdrawn",
)
FULL_COLUMNS = (*LINE_COLUMNS, "source", "parameters", "strides", "signer", "judge_sha256")
LINE_QUERY = f"select {', '.join(f'k.{name}' for name in LINE_COLUMNS)} from kernels k"
FULL_QUERY = (
    f"select {', '.join(f'k.{name}' for name in FULL_COLUMNS)}, c.value as certificate_text "
    "from kernels k join certificates c on c.sha256 = k.certificate"
)
BY_KEY = " and ".join(f"k.{name} = ?" for name in KEY_COLUMNS)
Cell = str | int | float | None


@dataclass(frozen=True)
class KernelSummary:
    """A kernel without its source and certificate, for lists. `row` numbers it in this file,
    `problem` is what its certificate calls the module, `certificate` the SHA-256 of that one's
    text.

    `unfit`: what keeps it from being given out though nobody withdrew it; `signed`: its
    certificate carries a signature. Both are None where nobody looked at the certificate.
    """

    row: int
    sha256: str
    key: KernelKey
    problem: str
    certificate: str
    run: str
    created: str
    basis: Basis
    speedup: float | None
    speedup_low: float | None
    time_us: float | None
    baseline_us: float | None
    verified: str
    withdrawn: str | None
    unfit: str | None = None
    signed: bool | None = None


@dataclass(frozen=True)
class StoredKernel:
    """A kernel as it was read back. `certificate_text`: byte by byte what was put."""

    row: int
    kernel: Kernel
    certificate_text: str


def key_values(key: KernelKey) -> tuple[str, ...]:
    """In the order of `KEY_COLUMNS`."""
    return tuple(str(getattr(key, name)) for name in KEY_COLUMNS)


def to_row(kernel: Kernel, certificate_sha256: str) -> dict[str, Cell]:
    """The columns of the table, `withdrawn_at` apart."""
    certificate = kernel.certificate
    return {
        "sha256": kernel.sha256,
        **dict(zip(KEY_COLUMNS, key_values(kernel.key), strict=True)),
        "problem": certificate.problem.name,
        "source": kernel.source,
        "parameters": json.dumps(kernel.parameters),
        "strides": _layout_text(kernel),
        "certificate": certificate_sha256,
        "signer": certificate.signature.key if certificate.signature else "",
        "judge_sha256": certificate.judge_sha256,
        "run": kernel.run,
        "created": kernel.created,
        "basis": kernel.basis,
        "speedup": kernel.speedup,
        "speedup_low": kernel.speedup_low,
        "time_us": kernel.time_us,
        "baseline_us": kernel.baseline_us,
        "verified": kernel.verified,
        "withdrawn": kernel.withdrawn,
    }


def _layout_text(kernel: Kernel) -> str:
    """Strides; behind them how arguments and outputs are nested, where they are."""
    dumped = kernel.model_dump(mode="json", include={"arguments", "returns"})
    nested = [dumped["arguments"], dumped["returns"]]
    strides = [kernel.input_strides, kernel.parameter_strides]
    return json.dumps([*strides, *nested] if any(nested) else strides)


def certificate_text(kernel: Kernel) -> str:
    """What is kept: the canonical text, which the signature is over."""
    # Imports torch, which finding and listing can do without.
    from agentkernel.tools.certificate.certificate import canonical_json

    return canonical_json(kernel.certificate)


def to_line(row: sqlite3.Row) -> KernelSummary:
    """Of a row of `LINE_QUERY` or `FULL_QUERY`."""
    return KernelSummary(
        row=int(row["id"]),
        sha256=str(row["sha256"]),
        key=_key(row),
        problem=str(row["problem"]),
        certificate=str(row["certificate"]),
        run=str(row["run"]),
        created=str(row["created"]),
        basis=_basis(row),
        speedup=row["speedup"],
        speedup_low=row["speedup_low"],
        time_us=row["time_us"],
        baseline_us=row["baseline_us"],
        verified=str(row["verified"]),
        withdrawn=row["withdrawn"],
    )


def to_checked_line(row: sqlite3.Row) -> KernelSummary:
    """Of a row of `FULL_QUERY`: with what its certificate says of it."""
    kernel = _read(row)
    if kernel is None:
        return replace(to_line(row), unfit=UNREADABLE_ROW, signed=False)
    signed = kernel.certificate.signature is not None
    return replace(to_line(row), unfit=_unfit(row, kernel), signed=signed)


def to_stored(row: sqlite3.Row) -> StoredKernel | None:
    """Of a row of `FULL_QUERY`; None where this version cannot read its certificate.

    What does not belong together comes back withdrawn.
    """
    kernel = _read(row)
    if kernel is None:
        return None
    if kernel.withdrawn is None:
        kernel = kernel.model_copy(update={"withdrawn": _unfit(row, kernel)})
    return StoredKernel(int(row["id"]), kernel, str(row["certificate_text"]))


def _read(row: sqlite3.Row) -> Kernel | None:
    try:
        certificate = Certificate.model_validate_json(str(row["certificate_text"]))
        parameters = tuple(map(str, json.loads(str(row["parameters"]))))
        input_strides, parameter_strides, *nested = json.loads(str(row["strides"]))
        arguments, returns = nested or (None, None)
        return Kernel(
            key=_key(row),
            sha256=str(row["sha256"]),
            source=str(row["source"]),
            parameters=parameters,
            input_strides=input_strides,
            parameter_strides=parameter_strides,
            arguments=arguments,
            returns=returns,
            certificate=certificate,
            run=str(row["run"]),
            created=str(row["created"]),
            basis=_basis(row),
            speedup=row["speedup"],
            speedup_low=row["speedup_low"],
            time_us=row["time_us"],
            baseline_us=row["baseline_us"],
            verified=str(row["verified"]),
            withdrawn=row["withdrawn"],
        )
    except (ValidationError, ValueError, TypeError):
        return None


def _unfit(row: sqlite3.Row, kernel: Kernel) -> str | None:
    """Why the row's source, figures and certificate are not of one kernel; None: they are."""
    certificate = kernel.certificate
    signer = certificate.signature.key if certificate.signature else ""
    found = certificate_mismatch(kernel, certificate_text=str(row["certificate_text"]))
    if found != OTHER_SOURCE and (signer, certificate.judge_sha256) != (
        row["signer"],
        row["judge_sha256"],
    ):
        return OTHER_CERTIFICATE
    return found


def _key(row: sqlite3.Row) -> KernelKey:
    # A key that was damaged is shown as it is found; no key that is asked for equals it.
    return KernelKey.model_construct(None, **{name: str(row[name]) for name in KEY_COLUMNS})


def _basis(row: sqlite3.Row) -> Basis:
    return "measured" if row["basis"] == "measured" else "estimated"
