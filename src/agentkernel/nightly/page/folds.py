"""What is shown of a kernel or a candidate when it is opened?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentkernel.domain.certificate import Certificate
from agentkernel.domain.night import NightlyRun, RegionRow
from agentkernel.domain.region import Kernel
from agentkernel.domain.verdict import Verdict
from agentkernel.nightly.page.content import Details
from agentkernel.nightly.page.lineage import plain_source, source_diff
from agentkernel.nightly.page.tables import STATUS_TONES, region_order
from agentkernel.nightly.page.withdrawn import is_replaced, withdrawn_text
from agentkernel.nightly.page.wording import SHORT, count, error_text, times, us, when

MOST_KERNELS = 100
"""The page holds the source and certificate of so many, those of the largest regions."""


def shown_kernels(
    night: NightlyRun, kernels: Mapping[str, Kernel]
) -> list[tuple[RegionRow, Kernel]]:
    """The regions whose kernel is known, the largest first, each kernel once."""
    found: dict[str, tuple[RegionRow, Kernel]] = {}
    for row in region_order(night):
        kernel = kernels.get(row.sha256 or row.parent or "")
        if kernel is not None:
            found.setdefault(kernel.sha256, (row, kernel))
    return list(found.values())[:MOST_KERNELS]


def kernel_details(
    night: NightlyRun, kernels: Mapping[str, Kernel], chains: Mapping[str, Sequence[str]]
) -> tuple[Details, ...]:
    """Facts, source or diff to the parent, and certificate of each kernel."""
    return tuple(
        _kernel(row, kernel, kernels, chains.get(row.signature, ()))
        for row, kernel in shown_kernels(night, kernels)
    )


def certificate_facts(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """The fields that a reader asks for first."""
    versions = certificate.versions
    yield "result", f"{certificate.status.replace('_', ' ')}: {certificate.reason}"
    yield "run", f"{certificate.run}, {when(certificate.created)}"
    yield "times are", certificate.basis
    profile = certificate.profile
    if profile is not None and profile.measurements:
        gpu = profile.measurements[0].gpu
        yield "measured on", f"{gpu.name}, driver {gpu.driver}"
    yield "target", certificate.target
    yield "made with", f"torch {versions.torch}, triton {versions.triton}"
    if certificate.problem.shape_sets:
        yield "shapes", certificate.problem.shape_sets[0].label
    if certificate.verdict is not None:
        yield "verdict", verdict_words(certificate.verdict)
    signature = certificate.signature
    signer = f"ed25519, key {signature.fingerprint[:16]}" if signature else "not signed"
    yield (
        "signature",
        signer
        if signature or not certificate.unsigned
        else (f"not signed: {certificate.unsigned}"),
    )
    yield "problem", certificate.problem_sha256
    yield "judge", certificate.judge_sha256


def verdict_words(verdict: Verdict) -> str:
    """The gate, how many cases, the errors, the rules."""
    gate = "accepted" if verdict.accepted else f"stopped at {verdict.gate}"
    how = " in Triton's interpreter" if verdict.interpreted else f" on {verdict.device}"
    errors = ""
    if verdict.cases:
        errors = (
            f"; error {error_text(verdict.worst_error)}, "
            f"eager's own {error_text(verdict.worst_eager_error)}"
        )
    rules = f"; precision {verdict.precision}, policy {verdict.policy}"
    return f"{gate}{how}, {count(len(verdict.cases), 'case')}{errors}{rules}"


def _kernel(
    row: RegionRow, kernel: Kernel, kernels: Mapping[str, Kernel], chain: Sequence[str]
) -> Details:
    before = [item for item in chain if item != kernel.sha256]
    parent = kernels.get(row.parent or (before[-1] if before else ""))
    if parent is not None and parent.sha256 == kernel.sha256:
        parent = None
    replaced = is_replaced(row)
    other = "the withdrawn" if replaced else "its parent"
    title = f"Diff to {other} {parent.sha256[:SHORT]}" if parent is not None else "Source"
    source = (
        source_diff(parent.source, kernel.source)
        if parent is not None
        else plain_source(kernel.source)
    )
    return Details(
        id=f"kernel-{kernel.sha256[:SHORT]}",
        title=f"{row.name} {kernel.sha256[:SHORT]}",
        state="in place of a withdrawn one" if replaced else row.status,
        tone="good" if replaced else STATUS_TONES[row.status],
        facts=tuple(_facts(row, kernel)),
        chain=tuple(item[:SHORT] for item in (*before, kernel.sha256)),
        source_title=title,
        source=source,
        record=kernel.certificate.model_dump_json(indent=1),
    )


def _facts(row: RegionRow, kernel: Kernel) -> Iterator[tuple[str, str]]:
    yield "kernel", kernel.sha256
    yield "region", f"{row.signature}: {' '.join(row.ops)}, {row.shapes}"
    yield "holds for", _holds_for(kernel)
    if kernel.basis == "measured" and kernel.speedup is not None:
        low = "" if kernel.speedup_low is None else f", at least {kernel.speedup_low:.2f}×"
        yield "speedup", f"{times(kernel.speedup)} over the faster baseline{low} (measured)"
    if kernel.time_us is not None:
        beside = f", baseline {us(kernel.baseline_us)}" if kernel.baseline_us else ""
        yield "time", f"{us(kernel.time_us)}{beside} ({kernel.basis})"
    if kernel.verified:
        yield "last judged", when(kernel.verified)
    if row.status == "withdrawn":
        yield "withdrawn", withdrawn_text(row)
    elif kernel.withdrawn or row.reason:
        yield ("withdrawn" if kernel.withdrawn else "note"), kernel.withdrawn or row.reason
    yield from certificate_facts(kernel.certificate)


def _holds_for(kernel: Kernel) -> str:
    key = kernel.key
    parts = (key.gpu, f"torch {key.torch}", f"triton {key.triton}", key.dtype, key.precision)
    return ", ".join(item for item in parts if item)
