"""Does what a row says of a kernel fit the certificate that was signed?"""

from __future__ import annotations

import math
from typing import NamedTuple

from agentkernel.domain.base import sha256_text
from agentkernel.domain.certificate import Certificate
from agentkernel.domain.profile import Profile
from agentkernel.domain.region import Kernel
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
