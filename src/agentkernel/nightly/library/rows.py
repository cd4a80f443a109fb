"""Rows of the library: kernels, checked against their signed certificates, and nightly runs."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pydantic import ValidationError

from agentkernel.domain.base import sha256_text
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.errors import LibraryError, one_line
from agentkernel.domain.nightly import ModelRow, NightlyRun, RegionRow, RegionStatus
from agentkernel.domain.profile import Profile
from agentkernel.domain.region import Basis, Kernel, KernelKey
from agentkernel.tools.certificate.record import canonical_json
from agentkernel.tools.certificate.signing import (
    SignatureState,
    certificate_signature,
    read_tree,
    signature_state,
)

OTHER_CERTIFICATE = "its certificate is of another text"
OTHER_SOURCE = "its source is of another text"
UNREADABLE_ROW = "its certificate cannot be read"
OTHER_SIGNATURE = "its certificate was edited: the signature does not fit"
OTHER_FIGURES = "not as in its certificate"
"""Behind the names of the columns."""
SAME = 1e-9
"""Relative: a figure is kept as the certificate has it, through one more text."""


class CertificateFigures(NamedTuple):
    """What a certificate says of a kernel's speed, by the names of the columns."""

    basis: str
    speedup: float | None
    speedup_low: float | None
    time_us: float | None
    baseline_us: float | None


def certificate_mismatch(
    kernel: Kernel, *, certificate_text: str | None = None, signed: bool = False
) -> str | None:
    """Why source, hash, key and figures are not those of the kernel's certificate, or that one's
    signature does not fit; None: all of it belongs together.

    `certificate_text` is the certificate as it was kept, whose own values are then what the
    signature must fit. A certificate without signature passes unless it has to be `signed`. About
    1.5 ms at 20 kB. Raises MissingDependency without the package `cryptography`.
    """
    certificate = kernel.certificate
    if sha256_text(kernel.source) != kernel.sha256:
        return OTHER_SOURCE
    same = certificate.candidate_sha256 == kernel.sha256
    if not same or certificate.candidate_source not in (None, kernel.source):
        return OTHER_CERTIFICATE
    state = _state(certificate, certificate_text)
    if state == "invalid" or (signed and state == "absent"):
        return OTHER_SIGNATURE if state == "invalid" else "its certificate is not signed"
    wrong = [*_other_key(kernel), *_other_figures(kernel)]
    return f"{', '.join(wrong)} {OTHER_FIGURES}" if wrong else None


def figures_of(certificate: Certificate) -> CertificateFigures:
    """The figures of the primary shapes, as a night keeps them in a kernel's row."""
    profile = certificate.profile
    if profile is None:
        return CertificateFigures(certificate.basis, None, None, None, None)
    if not profile.measured:
        eager = profile.baseline_estimate
        return CertificateFigures(
            basis=certificate.basis,
            speedup=None,
            speedup_low=None,
            time_us=profile.estimate.time_us,
            baseline_us=eager.time_us if eager is not None else None,
        )
    return _measured(certificate.basis, profile)


def _measured(basis: str, profile: Profile) -> CertificateFigures:
    primary = profile.measurements[0]
    every = (primary.vs_eager, primary.vs_compile, primary.vs_autotune)
    ratios = [item for item in every if item is not None]
    timings = (primary.eager, primary.compiled, primary.autotuned)
    return CertificateFigures(
        basis=basis,
        speedup=min(item.value for item in ratios),
        speedup_low=min(item.low for item in ratios),
        time_us=primary.candidate.median_us,
        baseline_us=min(item.median_us for item in timings if item is not None),
    )


def _state(certificate: Certificate, text: str | None) -> SignatureState:
    if text is None:
        return certificate_signature(certificate)
    try:
        return signature_state(read_tree(text))
    except (ValueError, RecursionError):
        return "invalid"


def _other_key(kernel: Kernel) -> list[str]:
    """Without the region's signature and the dtype, which no certificate names."""
    certificate, key = kernel.certificate, kernel.key
    verdict, profile = certificate.verdict, certificate.profile
    gpu = key.gpu
    if profile is not None:
        # A measured profile of before GPUs were named says nothing of its own.
        named = profile.measured_on or (key.gpu if profile.measured else None)
        gpu = named or f"estimated:{certificate.target}"
    known = {
        "gpu": gpu,
        "torch": certificate.versions.torch,
        "triton": certificate.versions.triton,
        "precision": verdict.precision if verdict is not None else key.precision,
    }
    return [name for name, value in known.items() if getattr(key, name) != value]


def _other_figures(kernel: Kernel) -> list[str]:
    proven = figures_of(kernel.certificate)._asdict()
    if kernel.certificate.profile is None:
        proven = {"basis": proven["basis"]}
    wrong = []
    for name, value in proven.items():
        found = getattr(kernel, name)
        if isinstance(found, float) and isinstance(value, float):
            same = math.isclose(found, value, rel_tol=SAME)
        else:
            same = found == value
        if not same:
            wrong.append(name)
    return wrong


def is_green(night: NightlyRun, exit_code: int | None) -> bool:
    """It ended, with `exit_code` 0; without one: no model failed, nothing was withdrawn."""
    if night.finished is None:
        return False
    if exit_code is not None:
        return exit_code == 0
    failed = any(item.error or item.verified is False for item in night.models)
    return not failed and all(item.status != "withdrawn" for item in night.regions)


def write_night(db: sqlite3.Connection, night: NightlyRun, exit_code: int | None) -> None:
    """Within a transaction: the night in place of what was saved of it before."""
    for table in ("night_models", "night_regions"):
        db.execute(f"delete from {table} where night = ?", (night.id,))
    head = night.evolve(models=(), regions=()).model_dump_json()
    db.execute(
        """insert into nights values (?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set
           zoo = excluded.zoo, started = excluded.started, finished = excluded.finished,
           green = excluded.green, basis = excluded.basis, value = excluded.value""",
        (
            night.id,
            night.zoo,
            night.started,
            night.finished,
            is_green(night, exit_code),
            night.basis,
            head,
        ),
    )
    db.executemany(
        "insert into night_models values (?, ?, ?, ?, ?, ?, ?)",
        (
            (
                night.id,
                number,
                item.name,
                item.vs_eager.value if item.vs_eager else None,
                item.vs_compile.value if item.vs_compile else None,
                item.estimated_speedup,
                item.model_dump_json(),
            )
            for number, item in enumerate(night.models)
        ),
    )
    db.executemany(
        "insert into night_regions values (?, ?, ?, ?, ?)",
        (
            (night.id, number, item.signature, item.status, item.model_dump_json())
            for number, item in enumerate(night.regions)
        ),
    )


def read_nights(
    db: sqlite3.Connection, ids: Sequence[str], statuses: Sequence[RegionStatus] = ()
) -> Iterator[NightlyRun]:
    """In the order of `ids`; whole, or with the regions of some `statuses` alone.

    Raises LibraryError for one that this version cannot read.
    """
    only = f"and status in ({', '.join('?' for _ in statuses)})" if statuses else ""
    for night_id in ids:
        row = db.execute("select value from nights where id = ?", (night_id,)).fetchone()
        if row is None:
            continue
        try:
            head = NightlyRun.model_validate_json(row[0])
            models = tuple(map(ModelRow.model_validate_json, _values(db, "night_models", night_id)))
            rows = _values(db, "night_regions", night_id, only, statuses)
            regions = tuple(map(RegionRow.model_validate_json, rows))
        except ValidationError as error:
            raise LibraryError(
                f"The night {night_id!r} cannot be read: {one_line(error, 120)}. Expected one "
                "that this version wrote. Next: read it with the version that did."
            ) from error
        yield head.evolve(models=models, regions=regions)


def _values(
    db: sqlite3.Connection, table: str, night_id: str, only: str = "", more: Sequence[str] = ()
) -> Iterator[str]:
    rows = db.execute(
        f"select value from {table} where night = ? {only} order by number", (night_id, *more)
    )
    return (str(row[0]) for row in rows)


KEY_COLUMNS = tuple(KernelKey.model_fields)
FIGURES = ("speedup", "speedup_low", "time_us", "baseline_us")
SAME_NAMES = ("sha256", "run", "created", *FIGURES, "verified", "withdrawn")
"""Columns that kernels and their summaries hold as they are, under the same name."""
LINE_COLUMNS = ("id", *KEY_COLUMNS, "problem", "certificate", "basis", *SAME_NAMES)
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
    certificate carries a signature; `dtype`: of its inputs; `interpreted`: no GPU ran it when it
    was judged. None and "" where nobody looked at the certificate, or it does not say.
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
    dtype: str = ""
    interpreted: bool | None = None


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
        **dict(zip(KEY_COLUMNS, key_values(kernel.key), strict=True)),
        **{name: getattr(kernel, name) for name in ("source", "basis", *SAME_NAMES)},
        "problem": certificate.problem.name,
        "parameters": json.dumps(kernel.parameters),
        "strides": _layout_text(kernel),
        "certificate": certificate_sha256,
        "signer": certificate.signature.key if certificate.signature else "",
        "judge_sha256": certificate.judge_sha256,
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

    return canonical_json(kernel.certificate)


def to_line(row: sqlite3.Row) -> KernelSummary:
    """Of a row of `LINE_QUERY` or `FULL_QUERY`."""
    return KernelSummary(
        row=int(row["id"]),
        key=_key(row),
        problem=str(row["problem"]),
        certificate=str(row["certificate"]),
        basis=_basis(row),
        **{name: row[name] for name in SAME_NAMES},
    )


def to_checked_line(row: sqlite3.Row) -> KernelSummary:
    """Of a row of `FULL_QUERY`: with what its certificate says of it."""
    kernel = _read(row)
    if kernel is None:
        return replace(to_line(row), unfit=UNREADABLE_ROW, signed=False)
    certificate = kernel.certificate
    verdict, sets = certificate.verdict, certificate.problem.shape_sets[:1]
    dtypes = {item.dtype: None for shapes in sets for item in shapes.tensors}
    return replace(
        to_line(row),
        unfit=_unfit(row, kernel),
        signed=certificate.signature is not None,
        dtype=", ".join(dtypes),
        interpreted=verdict.interpreted if verdict is not None else None,
    )


def to_stored(row: sqlite3.Row) -> StoredKernel | None:
    """Of a row of `FULL_QUERY`; None where this version cannot read its certificate.

    What does not belong together comes back withdrawn.
    """
    kernel = _read(row)
    if kernel is None:
        return None
    if kernel.withdrawn is None:
        kernel = kernel.evolve(withdrawn=_unfit(row, kernel))
    return StoredKernel(int(row["id"]), kernel, str(row["certificate_text"]))


def _read(row: sqlite3.Row) -> Kernel | None:
    try:
        certificate = Certificate.model_validate_json(str(row["certificate_text"]))
        parameters = tuple(map(str, json.loads(str(row["parameters"]))))
        input_strides, parameter_strides, *nested = json.loads(str(row["strides"]))
        arguments, returns = nested or (None, None)
        return Kernel(
            key=_key(row),
            source=str(row["source"]),
            parameters=parameters,
            input_strides=input_strides,
            parameter_strides=parameter_strides,
            arguments=arguments,
            returns=returns,
            certificate=certificate,
            basis=_basis(row),
            **{name: row[name] for name in SAME_NAMES},
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
