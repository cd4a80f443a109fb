"""Outcome of a run: the status it earns, and what is handed over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from agentkernel.agents.evidence import refusal_line
from agentkernel.agents.protocols import Attempt, Goals
from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import NO_SCHEDULE, OF_CONSTRUCTOR
from agentkernel.domain.certificate import Status
from agentkernel.domain.errors import one_line, whole_words
from agentkernel.domain.formatting import with_interval
from agentkernel.domain.profile import (
    LEFT_OUT,
    MatmulPrecision,
    Measurement,
    Profile,
    ProfileFailed,
    Ratio,
)
from agentkernel.domain.verdict import PolicyViolation
from agentkernel.tools.targets import load_targets

Faster = Literal["eager", "torch.compile", "max-autotune"]
REASON_MOST = 400
NONE_ACCEPTED = "none accepted"
NONE_DRAFTED = "no candidate was drafted"
"""Characters of the reason."""
UNSET = "the drop-in does not set"
"""How the verdict's note on a side effect begins."""
EARLIER = 0
"""The round of what earlier runs drafted."""
OUT_OF_TIME = "the time limit was over before it was judged"
"""Why a candidate was left out that a run with more time would judge."""
BROKEN = tuple(f"{NO_SCHEDULE}{kind}: " for kind in ("load", "compile", "run"))
"""How it begins where the drafts themselves are broken: nothing is known of their speed."""
LIMIT = "the time limit of "
"""Stands in the reason where a time limit ended a run before anything was judged."""
CUT = "interrupted while it was at work"
"""What is said of a candidate that a resumed run goes on with."""
DISTINGUISHABLE = 1.1
"""Estimated times that are within this factor of each other may as well be the other way round."""
SURELY_SLOWER = 0.98
"""Estimated speedup over eager below which a candidate is not handed over unmeasured: estimates of
two programs that move the same bytes agree to a per cent."""
SURELY_BELOW = 0.95
"""A search's times and the baselines' are minutes apart: of a kernel that is faster by less,
nothing is known."""
TIE = 0.01
"""An interval that lies within this of 1 is called a tie, not noise."""


class Baselines(Frozen):
    """Measured times of the baselines in microseconds, where no candidate was measured; None for
    one that has no time, and why max-autotune has none."""

    eager_us: float
    compiled_us: float | None
    autotuned_us: float | None = None
    autotune_error: str | None = None
    baselines_matmul: MatmulPrecision = "highest"


class Result(Frozen):
    """What a run hands back; with a kept baseline the figures are the best tried candidate's.

    `candidate`, `certificate`, `report` and `picture` are paths; `candidate` is None where a
    baseline is kept, and `baseline` says which (None in records from before it was said).
    Speedups are measured, baseline time / candidate time; `speedup_ci95` belongs to the fastest
    baseline. Everything that nobody measured has a name that begins with `estimated_`.
    """

    status: Status
    reason: str
    run: str
    measured: bool
    candidate: str | None
    candidate_sha256: str | None
    certificate: str | None
    report: str | None
    picture: str | None = None
    """The roofline beside the report; None where there is none, and in records from before it was
    kept."""
    problem: str
    target: str
    baseline: Faster | None = None
    measured_on: str | None = None
    interpreted: bool = True
    declared_sizes: bool = False
    """The drop-in holds for the declared sizes alone."""
    speedup_vs_eager: float | None = None
    speedup_vs_compile: float | None = None
    speedup_vs_autotune: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    roofline_fraction: float | None = None
    time_us: float | None = None
    eager_us: float | None = None
    compiled_us: float | None = None
    autotuned_us: float | None = None
    autotune_error: str | None = None
    """Why max-autotune has no time, where no candidate was measured."""
    baselines_matmul: MatmulPrecision = "highest"
    """What PyTorch's fp32 products may round in the measured baselines, and in one that is kept."""
    error_vs_oracle: float | None = None
    eager_error_vs_oracle: float | None = None
    eager_error_case: str = ""
    """The case that eager's error is of, where that is much larger than the candidate's or than
    eager's for the module's own inputs."""
    uncompared: str = ""
    """That the module's own outputs are not finite, and how many cases could not be compared; ""
    where they were."""
    estimated_time_us: float | None = None
    estimated_eager_us: float | None = None
    estimated_speedup_vs_eager: float | None = None
    drafts: int = 0
    spent_s: float = 0.0
    tokens: int | None = None
    """In and out, of all models together; None where none was asked, or none were counted."""
    cost_usd: float | None = None
    """What the models with a known price took; None where no price is known."""
    unpriced: int = 0
    """Answers whose cost is not known: with any, `cost_usd` is a lower bound."""
    replayed: bool = False
    """The answers are another run's: the tokens and the cost are what they took there."""
    interrupted: bool = False
    out_of_time: bool = False
    """The time limit ended it: with more time it goes on."""

    def __dir__(self) -> list[str]:
        """Its fields and what it answers, without what every value inherits."""
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, Result)]
        names = {name for kind in kinds for name in vars(kind) if not name.startswith("_")}
        return sorted({*type(self).model_fields, *names} - {"model_config"})

    @property
    def ended_by_time(self) -> bool:
        """Whether the time limit ended it, by its reason where a record is from before it said."""
        return self.out_of_time or LIMIT in self.reason or OUT_OF_TIME in self.reason

    @property
    def asked_models(self) -> bool:
        """True where a model was asked, or its answers were given again."""
        return self.tokens is not None or self.cost_usd is not None or self.unpriced > 0

    @property
    def exit_code(self) -> int:
        """0 met, improved or verified; 3 a baseline kept; 1 failed; 130 interrupted."""
        if self.interrupted:
            return 130
        if self.status == "failed":
            return 1
        return 3 if self.status.startswith("kept") else 0


class Outcome(Frozen):
    """The status with its reason, and the attempt that it rests on.

    `best` is the best candidate known, also where a baseline is kept; `handed_over` says which.
    `baseline` names the one that is kept; None where a candidate is handed over, or nothing is.
    """

    status: Status
    reason: str
    best: Attempt | None
    handed_over: bool
    baseline: Faster | None = None


def accepted(attempt: Attempt) -> bool:
    """True where the judge passed it."""
    return attempt.verdict is not None and attempt.verdict.accepted


def broke_profiling(attempt: Attempt) -> bool:
    """True where the candidate itself kept it from being profiled: it may never be handed over."""
    return attempt.unprofiled is not None and attempt.unprofiled.side == "candidate"


def best_attempt(history: Sequence[Attempt], goals: Goals) -> Attempt | None:
    """The best accepted attempt by the objective: safe measured ones first, then the estimate."""
    usable = [item for item in history if accepted(item) and not broke_profiling(item)]
    return min(usable, key=lambda item: _rank(item, goals), default=None)


def _rank(attempt: Attempt, goals: Goals) -> tuple[int, float, float]:
    """Sort key, smaller is better: (class, score by objective, time)."""
    profile = attempt.profile
    if profile is None:
        return (4, math.inf, math.inf)
    if not profile.measured:
        fits = profile.report is None or profile.report.fits
        return (2 if fits else 3, profile.estimate.time_us, profile.estimate.time_us)
    safe = safe_to_hand_over(attempt) and within_memory(attempt, goals)
    time_us = geometric_mean([item.candidate.median_us for item in profile.measurements])
    return (0 if safe else 1, score(attempt, goals), time_us)


def score(attempt: Attempt, goals: Goals) -> float:
    """What the objective minimises: microseconds, peak bytes or millijoules, over all shapes."""
    measurements = attempt.profile.measurements if attempt.profile else ()
    if not measurements:
        return math.inf
    if goals.objective == "memory":
        return float(max(item.peak_memory_bytes for item in measurements))
    if goals.objective == "energy":
        known = [item.energy_mj for item in measurements if item.energy_mj is not None]
        return geometric_mean(known) if len(known) == len(measurements) else math.inf
    return geometric_mean([item.candidate.median_us for item in measurements])


def geometric_mean(values: Sequence[float]) -> float:
    """The n-th root of the product; inf for none."""
    if not values:
        return math.inf
    return math.exp(sum(math.log(max(value, 1e-12)) for value in values) / len(values))


def faster_baseline(measurement: Measurement) -> Faster:
    """Which of the baselines was the fastest."""
    compiled, autotuned = measurement.compiled, measurement.autotuned
    return _fastest(
        measurement.eager.median_us,
        compiled.median_us if compiled is not None else None,
        autotuned.median_us if autotuned is not None else None,
    )


def _fastest(eager_us: float, compiled_us: float | None, autotuned_us: float | None) -> Faster:
    """The least time that is known; of equal ones the plainer."""
    times: list[tuple[Faster, float | None]] = [
        ("eager", eager_us),
        ("torch.compile", compiled_us),
        ("max-autotune", autotuned_us),
    ]
    known = [(name, time_us) for name, time_us in times if time_us is not None]
    return min(known, key=lambda item: item[1])[0]


def ratio_against(measurement: Measurement, baseline: str) -> Ratio:
    """The speedup over "eager", "compile" or "best" (of all that have a time the one with the
    smallest lower bound)."""
    compiled = measurement.vs_compile
    if baseline == "eager" or (baseline == "compile" and compiled is None):
        return measurement.vs_eager
    if baseline == "compile" and compiled is not None:
        return compiled
    every = (measurement.vs_eager, compiled, measurement.vs_autotune)
    return min((ratio for ratio in every if ratio is not None), key=lambda ratio: ratio.low)


def within_memory(attempt: Attempt, goals: Goals) -> bool:
    """True where the peak memory keeps the limit, or there is none."""
    if goals.max_memory_bytes is None or attempt.profile is None:
        return True
    return all(
        item.peak_memory_bytes <= goals.max_memory_bytes for item in attempt.profile.measurements
    )


def goals_met(attempt: Attempt, goals: Goals) -> bool:
    """True where it is measured, not slower, and reaches every goal with 95% confidence."""
    measurements = attempt.profile.measurements if attempt.profile else ()
    if not accepted(attempt) or not measurements or not within_memory(attempt, goals):
        return False
    lows = [ratio_against(item, goals.baseline).low for item in measurements]
    reached = lows[0] >= goals.speedup and geometric_mean(lows) >= goals.speedup
    return reached and safe_to_hand_over(attempt)


def safe_to_hand_over(attempt: Attempt) -> bool:
    """Not slower than any baseline with 95% confidence, for the primary shapes and in the
    geometric mean, and measurably slower for no other shapes."""
    measurements = attempt.profile.measurements if attempt.profile else ()
    if not measurements:
        return False
    ratios = [ratio_against(item, "best") for item in measurements]
    lows = [ratio.low for ratio in ratios]
    sure = lows[0] > 1.0 and geometric_mean(lows) > 1.0
    return sure and all(ratio.high >= 1.0 for ratio in ratios)


def _level(ratio: Ratio) -> bool:
    return ratio.low >= 1.0 - TIE and ratio.high <= 1.0 + TIE


def side_effect_note(attribute: str) -> str:
    """What a verdict says where the original's forward sets an attribute of its module."""
    return f"{UNSET} the attribute {attribute!r}, as the original does"


def decide_outcome(
    history: Sequence[Attempt],
    goals: Goals,
    *,
    nothing: str,
    baselines: Baselines | None = None,
    crash: str | None = None,
) -> Outcome:
    """The status that `history` earns under `goals`.

    `nothing` says why there is no candidate at all (the coder's reason), `baselines` were measured
    without one, `crash` says what ended the run before there was any.
    """
    found = _decided(history, goals, nothing, baselines, crash)
    verdict = found.best.verdict if found.handed_over and found.best is not None else None
    notes = [note for note in verdict.notes if note.startswith(UNSET)] if verdict else []
    return found.evolve(reason="; ".join([found.reason, *notes]))


def _decided(
    history: Sequence[Attempt],
    goals: Goals,
    nothing: str,
    baselines: Baselines | None,
    crash: str | None,
) -> Outcome:
    best = best_attempt(history, goals)
    if best is None and crash is not None:
        return Outcome(status="failed", reason=crash, best=None, handed_over=False)
    if best is None and not of_this_run(history) and _untried(nothing):
        reason = f"nothing could be tried: {nothing}"
        return Outcome(status="failed", reason=reason, best=None, handed_over=False)
    if best is None:
        return _kept(_why_none(history, nothing), None, _baseline_name(baselines))
    profile = best.profile
    if profile is None:
        return _untimed(best, baselines)
    if not profile.measured:
        return _unmeasured(best)
    return _measured(best, goals)


def _untried(nothing: str) -> bool:
    """True where the coder found a way, and what it wrote cannot be made or does not run at all."""
    return nothing.startswith(BROKEN) or OF_CONSTRUCTOR in nothing


def _untimed(best: Attempt, baselines: Baselines | None) -> Outcome:
    """Right, but not timed beside the baselines. Where those have times, the search's own must be
    plainly below them: nothing is handed over that may be slower."""
    missed = best.unprofiled
    why = f": {missed.side}: {missed.reason}" if missed is not None else ""
    reason = f"accepted by the judge; its speed could not be found out{why}"
    if baselines is None:
        return Outcome(status="verified", reason=reason, best=best, handed_over=True)
    times = (baselines.eager_us, baselines.compiled_us, baselines.autotuned_us)
    fastest, searched = min(item for item in times if item is not None), best.candidate.searched_us
    if searched is None:
        return _kept(f"{reason}; it may be slower", best, _fastest(*times))
    figures = f"{searched:.1f} us in the search, where the fastest baseline takes {fastest:.1f} us"
    if searched > SURELY_BELOW * fastest:
        return _kept(f"{reason}; {figures}: it may be slower", best, _fastest(*times))
    return Outcome(status="verified", reason=f"{reason}; {figures}", best=best, handed_over=True)


def _unmeasured(best: Attempt) -> Outcome:
    report = best.profile.report if best.profile else None
    if report is not None and not report.fits:
        bad = next(kernel for kernel in report.kernels if not kernel.fits)
        why = bad.error or "it needs more shared memory or registers than there are"
        return _kept(
            f"the candidate does not fit {report.target}: {bad.name}: {why}", best, "eager"
        )
    if best.profile is not None and estimated_slower(best.profile):
        slower = estimated_vs_eager(best.profile)
        return _kept(
            f"estimated slower than eager: {slower:.2f}x; nothing was measured", best, "eager"
        )
    return Outcome(
        status="verified",
        reason="accepted by the judge; no GPU here to measure it on, its time is estimated",
        best=best,
        handed_over=True,
    )


def estimated_vs_eager(profile: Profile) -> float | None:
    """The estimated speedup over eager, None where eager has no estimate."""
    eager = profile.baseline_estimate
    return None if eager is None else eager.time_us / profile.estimate.time_us


def estimated_slower(profile: Profile) -> bool:
    """True where nothing was measured and the estimate is surely behind eager's.

    By more than an estimate's own factor it always is. By less: eager is estimated as if each of
    its kernels filled the GPU, and beside it one whose grid has less blocks than the target has SMs
    is not surely slower.
    """
    ratio = estimated_vs_eager(profile)
    if profile.measured or ratio is None or ratio >= SURELY_SLOWER:
        return False
    if ratio <= 1 / DISTINGUISHABLE:
        return True
    known = load_targets().get(profile.target)
    blocks = [math.prod(kernel.grid) for kernel in profile.report.kernels] if profile.report else []
    return known is None or min(blocks, default=math.inf) >= known.sm_count.value


def _measured(best: Attempt, goals: Goals) -> Outcome:
    measurements = best.profile.measurements if best.profile else ()
    primary = measurements[0]
    figures = describe_speed(primary)
    if goals_met(best, goals):
        reason = f"{figures}; the goal was {goals.speedup:g}x against {goals.baseline}"
        return Outcome(status="met", reason=reason, best=best, handed_over=True)
    if not within_memory(best, goals):
        peak = max(item.peak_memory_bytes for item in measurements)
        reason = (
            f"peak memory {peak} bytes is past the limit of {goals.max_memory_bytes}; {figures}"
        )
        return _kept(reason, best, faster_baseline(primary))
    if safe_to_hand_over(best):
        reason = f"{figures}; short of the goal of {goals.speedup:g}x against {goals.baseline}"
        return Outcome(status="improved", reason=reason, best=best, handed_over=True)
    worst = min(measurements, key=lambda item: ratio_against(item, "best").low)
    ratio = ratio_against(worst, "best")
    verb = _missed(ratio, faster_baseline(worst))
    return _kept(
        f"the best candidate is {verb}: {describe_speed(worst)}", best, faster_baseline(primary)
    )


def _missed(ratio: Ratio, baseline: Faster) -> str:
    """How a candidate fares that is not surely as fast as the faster baseline."""
    if _level(ratio):
        return f"not distinguishable from {baseline}"
    if ratio.high < 1.0:
        return "slower than the faster baseline"
    return "too noisy to call"


def describe_speed(measurement: Measurement) -> str:
    """`1.31x [1.30, 1.32] against eager, 1.02x [1.01, 1.03] against torch.compile`, and against
    max-autotune where that was measured or failed."""
    text = f"{with_interval(measurement.vs_eager, 3)} against eager"
    if measurement.vs_compile is not None:
        text += f", {with_interval(measurement.vs_compile, 3)} against torch.compile"
    else:
        text += ", torch.compile failed"
    if measurement.vs_autotune is not None:
        text += f", {with_interval(measurement.vs_autotune, 3)} against max-autotune"
    elif measurement.autotune_error not in (None, LEFT_OUT):
        text += ", max-autotune failed"
    if measurement.baselines_matmul != "highest":
        text += f", all with float32_matmul_precision {measurement.baselines_matmul!r}"
    return text


def _baseline_name(baselines: Baselines | None) -> Faster:
    if baselines is None:
        return "eager"
    return _fastest(baselines.eager_us, baselines.compiled_us, baselines.autotuned_us)


def _kept(reason: str, best: Attempt | None, baseline: Faster) -> Outcome:
    """A baseline, by name: the status has one word for both modes of torch.compile."""
    status: Status = "kept_original" if baseline == "eager" else "kept_compiled"
    if baseline == "max-autotune":
        reason = f"{reason}; torch.compile's max-autotune is the fastest and is kept"
    return Outcome(status=status, reason=reason, best=best, handed_over=False, baseline=baseline)


def of_this_run(history: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """Without what earlier runs left to this one."""
    return tuple(item for item in history if item.candidate.round != EARLIER)


def _why_none(history: Sequence[Attempt], nothing: str) -> str:
    """Why there is no right candidate, from what this run itself did."""
    own = of_this_run(history)
    judged = [(item.candidate, item.verdict) for item in own if item.verdict is not None]
    if not judged and own and own[-1].aside == CUT:
        return f"{own[-1].candidate.id} was drafted; interrupted before it was judged"
    if not judged:
        return nothing or ("nothing was judged" if own else NONE_DRAFTED)
    broken = next((item.unprofiled for item in reversed(own) if broke_profiling(item)), None)
    if broken is not None:
        return (
            f"the accepted candidate does not run for the target: {broken.reason}: {_tail(broken)}"
        )
    candidate, last = judged[-1]
    why = _cut(refusal_line(candidate, last))
    if isinstance(last.failure, PolicyViolation):
        why = f"line {last.failure.line}: {_cut(last.failure.text)}"
    count = f"{len(judged)} candidate" + ("s" if len(judged) > 1 else "")
    left = ", ".join(item.candidate.id for item in own if item.aside == OUT_OF_TIME)
    more = f" ({left}: {OUT_OF_TIME})" if left else ""
    stop = f"the last one stopped at the gate {last.gate!r}: {why}"
    if last.undecided:
        stop = f"the last one {last.undecided}"
    return f"{count} drafted, {NONE_ACCEPTED}{more}; {stop}"


def _cut(text: str) -> str:
    """On one line, of so many whole words; what was cut is told by its end."""
    return whole_words(one_line(text, 2 * REASON_MOST), REASON_MOST)


def _tail(failed: ProfileFailed) -> str:
    lines = [line.strip() for line in failed.log.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no log"
