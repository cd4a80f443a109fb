"""Figures of one finished run, and the cache of the baseline times of a problem."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from agentkernel.bench.suite import NOT_RUN, Baseline, Sample, Times
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.certificate import Certificate, Versions
from agentkernel.domain.profile import Measurement, Ratio
from agentkernel.domain.settings import Settings
from agentkernel.domain.verdict import HACK_REASONS, Verdict, hack_name
from agentkernel.runtime.stages import StageTime
from agentkernel.storage.files import make_folder, write_atomic
from agentkernel.tools.certificate.record import read_certificate
from agentkernel.tools.profiler import BaselineTimes
from agentkernel.tools.run_store import read_run
from agentkernel.workflows.events import ProfileMissed, StagesTimed
from agentkernel.workflows.outcome import Result

DERIVED = "its cached time, times eager's drift"


class BaselineKey(Frozen):
    """All that a baseline's time depends on."""

    problem_sha256: str
    gpu: str
    torch: str
    triton: str
    driver: str | None

    @property
    def file_name(self) -> str:
        """Its file in the cache."""
        return f"{sha256_text(self.model_dump_json())[:24]}.json"


class CachedTimes(Frozen):
    """One file of the cache: the key in full, so that a person can read what it is of."""

    key: BaselineKey
    times: Times


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/agentkernel/bench`, below `~/.cache` where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "agentkernel" / "bench"


def baseline_key(problem_sha256: str, gpu: str, versions: Versions) -> BaselineKey:
    """The key of a problem on a GPU under the versions that are installed."""
    return BaselineKey(
        problem_sha256=problem_sha256,
        gpu=gpu,
        torch=versions.torch,
        triton=versions.triton,
        driver=versions.driver,
    )


def cached_times(folder: Path, key: BaselineKey) -> Times | None:
    """What the cache has; None where it has nothing, or nothing that can be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError, ValidationError):
        text = (folder / key.file_name).read_text(encoding="utf-8")
        found = CachedTimes.model_validate_json(text)
        return found.times if found.key == key else None
    return None


def keep_times(folder: Path, key: BaselineKey, times: Times) -> None:
    """Put the times into the cache, unless it has some: drift is told against the first ones.

    A first time of max-autotune joins them as it would have been in their session, by eager's.
    """
    cached = cached_times(folder, key)
    kept = times if cached is None else _joined(cached, times)
    if kept != cached:
        make_folder(folder)
        plain = kept.evolve(eager_drift=None, compiled_drift=None)
        content = CachedTimes(key=key, times=plain).model_dump_json(indent=1)
        write_atomic(folder / key.file_name, content)


def _joined(cached: Times, now: Times) -> Times:
    drift = _ratio(now.eager_us, cached.eager_us)
    if cached.autotune_us is not None or now.autotune_us is None or drift is None:
        return cached
    return cached.evolve(autotune_us=now.autotune_us / drift, autotune_note=now.autotune_note)


def with_drift(now: Times | None, cached: Times | None) -> Times:
    """This session's times, and the cache's where it has none, with the drift between them.

    A time of max-autotune from the cache is scaled by eager's drift and marked as derived.
    """
    if cached is None:
        return now or Times()
    if now is None:
        return cached if cached.autotune_us is None else _derived(cached, cached.autotune_us)
    drift = _ratio(now.eager_us, cached.eager_us)
    found = now.evolve(
        compiled_us=now.compiled_us or cached.compiled_us,
        eager_drift=drift,
        compiled_drift=_ratio(now.compiled_us, cached.compiled_us),
    )
    if now.autotune_us is not None or cached.autotune_us is None or drift is None:
        return found
    return _derived(found, cached.autotune_us * drift)


def _derived(times: Times, autotune_us: float) -> Times:
    return times.evolve(autotune_us=autotune_us, autotune_derived=True, autotune_note=DERIVED)


def derived_ratio(vs_eager: Ratio, cached: Times) -> Ratio | None:
    """A speedup over max-autotune that nobody timed beside the candidate: that over eager, times
    what the cache says of the two. Its interval is that of `vs_eager`; None without both times."""
    factor = _ratio(cached.autotune_us, cached.eager_us)
    if factor is None:
        return None
    return Ratio(
        value=vs_eager.value * factor, low=vs_eager.low * factor, high=vs_eager.high * factor
    )


def _ratio(now: float | None, then: float | None) -> float | None:
    return now / then if now and then else None


def to_sample(
    settings: Settings, result: Result, runs: Path, cached: Times | None = None
) -> Sample:
    """A run's result with what its folder below `runs` tells. `settings` are the run's, `cached`
    the baselines' times that were known before it, for what it did not measure."""
    certificate, found = _certificate(result), _read_run(runs, result.run)
    primary = _primary(certificate)
    vs_autotune = primary.vs_autotune if primary else None
    derived = None
    if primary is not None and vs_autotune is None and cached is not None:
        derived = derived_ratio(primary.vs_eager, cached)
    return Sample.model_validate(
        {
            "seed": settings.seed,
            "status": result.status,
            "reason": result.reason,
            "run": result.run,
            "correct": certificate is not None and _is_correct(certificate, found),
            "interpreted": result.interpreted,
            "declared_sizes": result.declared_sizes,
            "kernelbench_correct": _kernelbench(
                certificate, found.verdicts, asked=settings.judge.kernelbench
            ),
            "kept": kept_baseline(result),
            "time_us": result.time_us,
            "vs_eager": primary.vs_eager if primary else None,
            "vs_compile": primary.vs_compile if primary else None,
            "vs_autotune": vs_autotune or derived,
            "autotune_derived": derived is not None,
            "roofline_fraction": result.roofline_fraction,
            "energy_mj": primary.energy_mj if primary else None,
            "eager_energy_mj": primary.eager_energy_mj if primary else None,
            "estimated_time_us": result.estimated_time_us,
            "estimated_eager_us": result.estimated_eager_us,
            "candidate_sha256": certificate.profile.candidate
            if certificate is not None and certificate.profile is not None
            else result.candidate_sha256,
            "candidates": result.drafts,
            "own_share": primary.own_kernel_share if primary else None,
            "seconds": result.spent_s,
            "stages": _stages(found),
            "hacks": _hacks(found),
        }
    )


def _certificate(result: Result) -> Certificate | None:
    return read_certificate(Path(result.certificate)) if result.certificate else None


def _primary(certificate: Certificate | None) -> Measurement | None:
    if certificate is None or certificate.profile is None or not certificate.profile.measured:
        return None
    return certificate.profile.measurements[0]


def _is_correct(certificate: Certificate, told: _RunRecords) -> bool:
    """True where the judge accepted a candidate that also runs for the target.

    One that has no profile may have broken while it was profiled, or the time for that was over.
    """
    verdict, profile = certificate.verdict, certificate.profile
    if verdict is None or not verdict.accepted:
        return False
    if profile is None:
        return not any(verdict.candidate.startswith(x.candidate) for x in _own_misses(told))
    return profile.measured or profile.report is None or profile.report.fits


def kept_baseline(result: Result) -> Baseline | None:
    """The baseline that was handed back; None where a candidate was, or nothing."""
    # Records from before there were three baselines name it by the status alone.
    by_status: dict[str, Baseline] = {"kept_original": "eager", "kept_compiled": "torch.compile"}
    return result.baseline or by_status.get(result.status)


def _kernelbench(
    certificate: Certificate | None, verdicts: Sequence[Verdict], *, asked: bool
) -> bool | None:
    """Of the best candidate; where none was accepted, of any; False where there is none at all.

    None where nobody asked, or the reference gave nothing to compare with.
    """
    best = certificate.verdict if certificate is not None else None
    if best is not None and best.accepted:
        return best.kernelbench
    told = [item.kernelbench for item in verdicts if item.kernelbench is not None]
    if not told:
        return False if asked and not verdicts else None
    return any(told)


def times_of(results: Iterable[Result]) -> Times | None:
    """The baselines' times of the first run that measured; None where none did."""
    for result in results:
        if result.eager_us is None:
            continue
        primary = _primary(_certificate(result))
        autotuned_us, error = autotuned_of(primary if primary is not None else result)
        return Times(
            eager_us=result.eager_us,
            compiled_us=result.compiled_us,
            autotune_us=autotuned_us,
            autotune_note=autotune_note(autotuned_us, error),
        )
    return None


class Autotuned(NamedTuple):
    """Max-autotune's time in microseconds, or why there is none."""

    time_us: float | None
    error: str | None


def autotuned_of(measured: Measurement | BaselineTimes | Result) -> Autotuned:
    """What a measurement with or without a candidate, or the result of a run that had none, says
    of max-autotune."""
    if isinstance(measured, Result):
        return Autotuned(measured.autotuned_us, measured.autotune_error)
    found = measured.autotuned
    return Autotuned(found.median_us if found is not None else None, measured.autotune_error)


def autotune_note(time_us: float | None, error: str | None) -> str:
    """Why there is no time; "" where there is."""
    if time_us is not None:
        return ""
    return NOT_RUN if error is None else f"failed: {error}"


@dataclass(frozen=True)
class _RunRecords:
    """What a run's records say: every verdict, and every event as JSON."""

    verdicts: Sequence[Verdict]
    events: Sequence[str]


def _read_run(runs: Path, run: str) -> _RunRecords:
    store = read_run(runs, run)
    try:
        return _RunRecords(store.records.verdicts(), store.records.events())
    finally:
        store.close()


def _hacks(told: _RunRecords) -> tuple[str, ...]:
    """Kind and rule of every candidate of a run that was caught."""
    missed = {
        (item.candidate, item.reason) for item in _own_misses(told) if item.reason in HACK_REASONS
    }
    caught = [name for name in map(hack_name, told.verdicts) if name is not None]
    return (*caught, *(f"profile:{reason}" for _, reason in sorted(missed)))


def _stages(told: _RunRecords) -> tuple[StageTime, ...]:
    """Where the time of all sessions of a run went, stage by stage."""
    seconds: dict[tuple[str, bool], float] = {}
    for text in told.events:
        if '"kind":"stages_timed"' in text:
            for item in StagesTimed.model_validate_json(text).stages:
                key = (item.stage, item.overlapped)
                seconds[key] = seconds.get(key, 0.0) + item.seconds
    return tuple(
        StageTime(stage=stage, seconds=round(value, 3), overlapped=overlapped)
        for (stage, overlapped), value in seconds.items()
    )


def _own_misses(told: _RunRecords) -> list[ProfileMissed]:
    """The profiles that failed by the candidate's own fault."""
    found = map(_profile_missed, told.events)
    return [item for item in found if item is not None and item.side == "candidate"]


def _profile_missed(text: str) -> ProfileMissed | None:
    marked = '"kind":"profile_missed"' in text
    return ProfileMissed.model_validate_json(text) if marked else None
