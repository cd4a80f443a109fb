"""Profiles of the candidates of one problem, with measured figures and estimates."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from statistics import median
from types import TracebackType
from typing import NamedTuple, Self

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import AgentKernelError, MissingDependency
from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import (
    CompileReport,
    Estimate,
    MatmulPrecision,
    Measurement,
    Profile,
    ProfileFailed,
    Ratio,
    Timing,
)
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Precision
from agentkernel.runtime.stages import stage
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.compile.candidate import compile_candidate
from agentkernel.tools.judge.policy.kernel_source import functions, is_jit
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.profiler.comparison import Comparison, ComparisonResult, SideMeasures
from agentkernel.tools.profiler.nvml import NvmlGauge
from agentkernel.tools.profiler.rounds import AUTOTUNED, ProfileSettings, SideFailed
from agentkernel.tools.profiler.timing.batch import as_failure
from agentkernel.tools.profiler.timing.driver import CandidateProcess
from agentkernel.tools.profiler.timing.process import CANDIDATE
from agentkernel.tools.profiler.timing.stopwatch import KernelLaunch, flush_bytes
from agentkernel.tools.roofline.model import analyse, estimate, estimate_eager
from agentkernel.tools.speedup import paired_ratio, summarise
from agentkernel.tools.targets import ResolvedTarget


class CandidateEstimate(NamedTuple):
    """The compile report with the estimates that rest on it. `failed` where the kernels do not
    compile for the target; the estimate is then the roofline bound itself."""

    analysis: Analysis
    report: CompileReport | None
    candidate: Estimate
    eager: Estimate
    failed: ProfileFailed | None = None


def estimate_candidate(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    target: Target,
    *,
    precision: Precision = "strict",
    allow_unsandboxed: bool = False,
    written: Captured | None = None,
) -> CandidateEstimate:
    """Cross-compile `source` for `target` at the first shape set's sizes and estimate its time.

    `written`: the graph that the source was written from, where that is not `captured`: its
    operations are then the candidate's.
    """
    analysis = analyse(written or captured, target, precision)
    eager = estimate_eager(captured, target, precision)
    report = compile_candidate(loaded, source, target, allow_unsandboxed=allow_unsandboxed)
    if isinstance(report, CompileReport):
        return CandidateEstimate(analysis, report, estimate(report, analysis, target), eager)
    failed = ProfileFailed(side="candidate", reason=report.kind, log=report.log)
    return CandidateEstimate(analysis, None, _bound(analysis, target), eager, failed)


def _bound(analysis: Analysis, target: Target) -> Estimate:
    return Estimate(
        target=target.name,
        time_us=analysis.bound_us,
        bytes_moved=analysis.bytes_min,
        flops=analysis.flops,
        bound=analysis.roofline,
        assumptions=("no compile report: the roofline bound itself", *analysis.assumptions),
    )


def to_measurement(
    found: ComparisonResult,
    *,
    shapes: str,
    analysis: Analysis,
    copy_gb_per_s: float,
    own_kernels: Collection[str],
    seed: int = 0,
) -> Measurement:
    """The record of one shape set. `analysis` is that of the GPU that measured.

    The roofline is the longer of the least traffic at the measured copy ceiling and the least
    arithmetic at the data sheet's peak (Williams, Waterman, Patterson, CACM 52(4), 2009).
    """
    rounds = found.rounds
    own = rounds.medians(CANDIDATE)
    candidate = summarise(rounds.samples(CANDIDATE), found.candidate.do_bench_us)
    compiled = _side("compile", found.compiled, found)
    autotuned = _side(AUTOTUNED, found.autotuned, found)
    roofline_us = max(analysis.bytes_min / (copy_gb_per_s * 1e3), analysis.compute_time_us)
    return Measurement(
        shapes=shapes,
        candidate=candidate,
        eager=summarise(rounds.samples("eager"), found.eager.do_bench_us),
        compiled=compiled,
        compile_error=found.compile_error,
        vs_eager=paired_ratio(rounds.medians("eager"), own, seed=seed),
        vs_compile=(
            None if compiled is None else paired_ratio(rounds.medians("compile"), own, seed=seed)
        ),
        autotuned=autotuned,
        autotune_error=found.autotune_error,
        autotuned_mode=found.autotuned_mode if autotuned is not None else None,
        vs_autotune=(
            None if autotuned is None else paired_ratio(rounds.medians(AUTOTUNED), own, seed=seed)
        ),
        achieved_gb_per_s=analysis.bytes_min / candidate.median_us / 1e3,
        achieved_tflops=analysis.flops / candidate.median_us / 1e6,
        copy_gb_per_s=copy_gb_per_s,
        roofline_us=roofline_us,
        roofline_fraction=roofline_us / candidate.median_us,
        launches=len(found.launches),
        own_kernel_share=own_share(found.launches, own_kernels),
        library_calls=sum(item.name not in own_kernels for item in found.launches),
        peak_memory_bytes=found.candidate.peak_bytes,
        eager_peak_memory_bytes=found.eager.peak_bytes,
        energy_mj=found.candidate.energy_mj,
        eager_energy_mj=found.eager.energy_mj,
        gpu=found.gpu,
        baselines_matmul=found.matmul_precision,
        rounds=len(rounds.kept),
        discarded_rounds=len(rounds.discarded),
        round_medians_us={
            side: tuple(round(value, 3) for value in rounds.medians(side))
            for side in rounds.sides()
        },
        clock=found.clock,
        eager_clock=found.eager_clock,
    )


def own_share(launches: Sequence[KernelLaunch], own_kernels: Collection[str]) -> float | None:
    """Share of a call's device time in the candidate's own kernels; None without a record."""
    total = sum(item.device_us for item in launches)
    if total <= 0:
        return None
    return sum(item.device_us for item in launches if item.name in own_kernels) / total


def kernel_names(source: str) -> frozenset[str]:
    """Functions of `source` under a `jit` decorator: `@triton.jit`, `@jit`, called or not."""
    try:
        tree = parse_source(source)
    except SyntaxError:
        return frozenset()
    return frozenset(item.name for item in functions(tree) if is_jit(item))


def _side(name: str, extras: SideMeasures | None, found: ComparisonResult) -> Timing | None:
    if extras is None:
        return None
    return summarise(found.rounds.samples(name), extras.do_bench_us)


class BaselineTimes(Frozen):
    """Eager, torch.compile and its max-autotune of one shape set, interleaved, without a candidate.

    An `autotune_error` says that max-autotune was left out or how it failed.
    """

    shapes: str
    eager: Timing
    compiled: Timing | None
    compile_error: str | None
    eager_over_compiled: Ratio | None
    autotuned: Timing | None = None
    autotune_error: str | None = None
    autotuned_mode: str | None = None
    eager_over_autotuned: Ratio | None = None
    matmul_precision: MatmulPrecision = "highest"


class QuickTimes(Frozen):
    """Medians of few calls of eager and torch.compile (default mode) on the first shape set. They
    serve to set hopeless candidates aside and are never reported."""

    eager_us: float
    compiled_us: float | None


class ProfileSession:
    """Profiles the candidates of one problem. While it is open, the baseline process with eager
    and the compiled modules stays alive, so that torch.compile is paid for once."""

    def __init__(
        self, loaded: LoadedProblem, resolved: ResolvedTarget, settings: ProfileSettings
    ) -> None:
        self.loaded = loaded
        self.resolved = resolved
        self._settings = settings
        self._comparison: Comparison | None = None
        self._quick: list[QuickTimes | None] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the baseline process and free the device; a later call starts them again."""
        if self._comparison is not None:
            self._comparison.__exit__(None, None, None)
            self._comparison = None

    def begin(self) -> None:
        """Start the baselines' process and its torch.compile ahead of need, where one is needed.

        What is wrong with the problem itself is left for those who need the answer to find.
        """
        if self.measures:
            with contextlib.suppress(AgentKernelError):
                self._open().begin()

    def ready(self) -> bool:
        """True where a profile would begin at once: no baseline compiles ahead of it."""
        return self._comparison is None or self._comparison.ready()

    def make_room(self) -> None:
        """Free what is large in the GPU's memory, until the next profile."""
        if self._comparison is not None:
            self._comparison.make_room()

    @property
    def measures(self) -> bool:
        """True where this machine's GPU can stand for the target."""
        return self.resolved.measurable and self.resolved.target.vendor == "nvidia"

    def profile(
        self, captured: Captured, source: str, written: Captured | None = None
    ) -> Profile | ProfileFailed:
        """Estimate `source`, and measure every shape set where that is possible.

        `captured` is the first shape set's, `written` the graph that the source was written from
        where that is another one. A candidate that cannot be measured where a GPU is, or
        not compiled where none is, gives a ProfileFailed.
        """
        target, settings = self.resolved.target, self._settings
        with stage("compile report"):
            estimated = estimate_candidate(
                self.loaded,
                captured,
                source,
                target,
                precision=settings.precision,
                allow_unsandboxed=settings.allow_unsandboxed,
                written=written,
            )
        if estimated.failed is not None and not self.measures:
            return estimated.failed
        measurements = self._measure(captured, source) if self.measures else ()
        if isinstance(measurements, ProfileFailed):
            return measurements
        local = self.resolved.local
        return Profile(
            candidate=sha256_text(source),
            target=target.name,
            report=estimated.report,
            estimate=estimated.candidate,
            baseline_estimate=estimated.eager,
            measurements=measurements,
            measured_on=local.name if measurements and local is not None else None,
        )

    def baselines(self, shape_set: int = 0) -> BaselineTimes | ProfileFailed:
        """Times of the baselines alone. Raises MissingDependency without a GPU."""
        if not self.measures:
            raise MissingDependency(
                f"Baselines are measured, and this machine cannot stand for "
                f"{self.resolved.target.name}: {self.resolved.note}."
            )
        comparison = self._open()
        rounds = comparison.measure_baselines(shape_set)
        if isinstance(rounds, SideFailed):
            return _failed(rounds)
        if not rounds.kept:
            return _throttled(len(rounds.discarded))
        eager = rounds.medians("eager")
        times = {name: summarise(rounds.samples(name)) for name in rounds.sides()}
        ratios = {name: paired_ratio(eager, rounds.medians(name)) for name in rounds.sides()}
        return BaselineTimes(
            shapes=self.loaded.problem.shape_sets[shape_set].label,
            eager=times["eager"],
            compiled=times.get("compile"),
            compile_error=comparison.compile_error(shape_set),
            eager_over_compiled=ratios.get("compile"),
            autotuned=times.get(AUTOTUNED),
            autotune_error=comparison.autotune_error(shape_set),
            autotuned_mode=comparison.autotuned_mode(shape_set) if AUTOTUNED in times else None,
            eager_over_autotuned=ratios.get(AUTOTUNED),
            matmul_precision=comparison.matmul_precision,
        )

    def quick_times(self) -> QuickTimes | None:
        """Measured at the first call, which waits for torch.compile and not for max-autotune; None
        where nothing can be measured."""
        if not self._quick:
            self._quick.append(self._quick_times() if self.measures else None)
        return self._quick[0]

    def _quick_times(self) -> QuickTimes | None:
        rounds = self._open().measure_quickly()
        if isinstance(rounds, SideFailed) or not rounds.kept:
            return None
        times = {name: median(rounds.samples(name)) for name in rounds.sides()}
        return QuickTimes(eager_us=times["eager"], compiled_us=times.get("compile"))

    def _measure(self, captured: Captured, source: str) -> tuple[Measurement, ...] | ProfileFailed:
        process = self._open().candidate(source)
        if isinstance(process, SideFailed):
            return _failed(process)
        measured: list[Measurement] = []
        first, *rest = self._shape_sets()
        with process:
            for shape_set in (*rest, first):
                found = self._one(process, captured, source, shape_set, record=shape_set == first)
                if isinstance(found, ProfileFailed):
                    return found
                measured.append(found)
        primary = measured[-1]
        others = [item.evolve(launches=primary.launches) for item in measured[:-1]]
        return (primary, *others)

    def _one(
        self,
        process: CandidateProcess,
        captured: Captured,
        source: str,
        shape_set: int,
        *,
        record: bool,
    ) -> Measurement | ProfileFailed:
        comparison = self._open()
        found = comparison.measure(process, shape_set, record=record)
        if isinstance(found, SideFailed):
            return _failed(found)
        if not found.rounds.kept:
            return _throttled(len(found.rounds.discarded))
        disputed = as_failure(found.clock)
        if disputed is not None:
            return disputed
        ceiling = comparison.copy_gb_per_s()
        if isinstance(ceiling, SideFailed):
            return _failed(ceiling)
        return to_measurement(
            found,
            shapes=self.loaded.problem.shape_sets[shape_set].label,
            analysis=self._analysis(captured, shape_set),
            copy_gb_per_s=ceiling,
            own_kernels=kernel_names(source),
            seed=self._settings.seed,
        )

    def _analysis(self, captured: Captured, shape_set: int) -> Analysis:
        """On the GPU that measures, which may be another model than the target."""
        gpu = self.resolved.measured_target or self.resolved.target
        graph = captured if shape_set == 0 else capture(self.loaded, shape_set)
        return analyse(graph, gpu, self._settings.precision)

    def _shape_sets(self) -> tuple[int, ...]:
        every = tuple(range(len(self.loaded.problem.shape_sets)))
        return every if self._settings.shape_sets is None else self._settings.shape_sets

    def _open(self) -> Comparison:
        if self._comparison is None:
            gpu = self.resolved.measured_target or self.resolved.target
            self._comparison = Comparison(
                self.loaded,
                self._settings,
                NvmlGauge(_uuid()),
                flush_bytes=flush_bytes(gpu.l2_mb.value),
            )
        return self._comparison


def profile(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    resolved: ResolvedTarget,
    settings: ProfileSettings | None = None,
) -> Profile | ProfileFailed:
    """`ProfileSession.profile` for one candidate alone."""
    with ProfileSession(loaded, resolved, settings or ProfileSettings()) as session:
        return session.profile(captured, source)


def measure_baselines(
    loaded: LoadedProblem,
    resolved: ResolvedTarget,
    settings: ProfileSettings | None = None,
    shape_set: int = 0,
) -> BaselineTimes | ProfileFailed:
    """`ProfileSession.baselines` for one shape set alone."""
    with ProfileSession(loaded, resolved, settings or ProfileSettings()) as session:
        return session.baselines(shape_set)


def _uuid() -> str | None:
    """NVML's name of the GPU that CUDA calls device 0."""
    import torch

    found = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    return None if found is None else f"GPU-{str(found).removeprefix('GPU-')}"


def _failed(failure: SideFailed) -> ProfileFailed:
    return ProfileFailed(side=failure.side, reason=failure.reason, log=failure.log)


def _throttled(rounds: int) -> ProfileFailed:
    return ProfileFailed(
        side="gpu",
        reason="throttled",
        log=f"the GPU slowed down in all {rounds} rounds: heat, hardware slowdown or power brake",
    )
