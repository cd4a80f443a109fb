"""What does one finished run say about the coder, in the figures of a bench?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agentkernel.domain.certificate import Certificate
from agentkernel.domain.profile import Measurement
from agentkernel.domain.verdict import ExecutionFailed, PolicyViolation, Verdict
from agentkernel.tools.bench.rows import Sample, Times
from agentkernel.tools.certificate import read_certificate
from agentkernel.tools.store import open_run
from agentkernel.workflows.events import ProfileMissed
from agentkernel.workflows.outcome import Result

HACK_KINDS = ("policy", "execution", "inputs", "timing")
"""A candidate that fails in one of these ways did not do the work that was asked for."""
HACK_REASONS = (
    "timing_disputed",
    "wrong_output",
    "stale_output",
    "missing_output",
    "overwritten_output",
    "inputs_changed",
    "weights_changed",
    "side_work",
    "flush_skipped",
)
"""The same, found while it was timed."""


def to_sample(seed: int, result: Result, runs: Path) -> Sample:
    """A run's result with what its folder below `runs` tells."""
    certificate = read_certificate(Path(result.certificate)) if result.certificate else None
    primary = _primary(certificate)
    kept = {"kept_original": "eager", "kept_compiled": "torch.compile"}.get(result.status)
    return Sample.model_validate(
        {
            "seed": seed,
            "status": result.status,
            "reason": result.reason,
            "run": result.run,
            "correct": certificate is not None and is_correct(certificate),
            "interpreted": result.interpreted,
            "kept": kept,
            "time_us": result.time_us,
            "vs_eager": primary.vs_eager if primary else None,
            "vs_compile": primary.vs_compile if primary else None,
            "roofline_fraction": result.roofline_fraction,
            "energy_mj": primary.energy_mj if primary else None,
            "eager_energy_mj": primary.eager_energy_mj if primary else None,
            "estimated_time_us": result.estimated_time_us,
            "estimated_eager_us": result.estimated_eager_us,
            "candidate_sha256": certificate.profile.candidate
            if certificate is not None and certificate.profile is not None
            else result.candidate_sha256,
            "candidates": result.drafts,
            "seconds": result.spent_s,
            "hacks": read_hacks(runs, result.run),
        }
    )


def _primary(certificate: Certificate | None) -> Measurement | None:
    if certificate is None or certificate.profile is None or not certificate.profile.measured:
        return None
    return certificate.profile.measurements[0]


def is_correct(certificate: Certificate) -> bool:
    """True where the judge accepted a candidate that also runs for the target.

    One that broke while it was profiled leaves an accepted verdict, no profile and no drop-in.
    """
    verdict, profile = certificate.verdict, certificate.profile
    if verdict is None or not verdict.accepted:
        return False
    if profile is None:
        return certificate.candidate_sha256 is not None
    return profile.measured or profile.report is None or profile.report.fits


def times_of(results: Iterable[Result], autotune_note: str) -> Times | None:
    """The baselines' times of the first run that measured; None where none did."""
    for result in results:
        if result.eager_us is not None:
            return Times(
                eager_us=result.eager_us,
                compiled_us=result.compiled_us,
                autotune_note=autotune_note,
            )
    return None


def read_hacks(runs: Path, run: str) -> tuple[str, ...]:
    """Kind and rule of every candidate of a run that was caught."""
    store = open_run(runs, run)
    try:
        verdicts, texts = store.records.verdicts(), store.records.events()
    finally:
        store.close()
    missed = {
        (item.candidate, item.reason)
        for item in map(_profile_missed, texts)
        if item is not None and item.side == "candidate" and item.reason in HACK_REASONS
    }
    caught = [name for name in map(hack_name, verdicts) if name is not None]
    return (*caught, *(f"profile:{reason}" for _, reason in sorted(missed)))


def hack_name(verdict: Verdict) -> str | None:
    """`execution:no-kernel`, or the kind alone; None for an honest failure."""
    failure = verdict.failure
    if failure is None or failure.kind not in HACK_KINDS:
        return None
    if isinstance(failure, PolicyViolation | ExecutionFailed):
        return f"{failure.kind}:{failure.rule}"
    return failure.kind


def _profile_missed(text: str) -> ProfileMissed | None:
    marked = '"kind":"profile_missed"' in text
    return ProfileMissed.model_validate_json(text) if marked else None
