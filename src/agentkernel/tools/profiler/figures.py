"""Which figures does a user read off a measurement? Rates, ratios and the share of the roofline."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import Measurement, Timing
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.kernel_text import functions, is_jit
from agentkernel.tools.profiler.contested import ComparisonResult, SideMeasures
from agentkernel.tools.profiler.sides import AUTOTUNED
from agentkernel.tools.profiler.timing.bench import KernelLaunch
from agentkernel.tools.profiler.timing.worker_ops import CANDIDATE
from agentkernel.tools.ratio import paired_ratio, summarise


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
        peak_memory_bytes=found.candidate.peak_bytes,
        eager_peak_memory_bytes=found.eager.peak_bytes,
        energy_mj=found.candidate.energy_mj,
        eager_energy_mj=found.eager.energy_mj,
        gpu=found.gpu,
        baselines_matmul=found.matmul_precision,
        rounds=len(rounds.kept),
        discarded_rounds=len(rounds.discarded),
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
