"""Rates, ratios and the roofline fraction follow from the measured times."""

from __future__ import annotations

import dataclasses

import pytest

from agentkernel.domain.plan import Analysis
from agentkernel.domain.profile import ClockCheck, Measurement
from agentkernel.tools.profiler.comparison import ComparisonResult, SideMeasures
from agentkernel.tools.profiler.rounds import Pace, Rounds, measure_rounds
from agentkernel.tools.profiler.session import kernel_names, own_share, to_measurement
from agentkernel.tools.profiler.timing.stopwatch import KernelLaunch
from agentkernel.tools.speedup import paired_ratio
from tests.tools.profiler.simulated_gpu import STATE, SimulatedClockwork, SimulatedSide

SOURCE = """
import triton
from triton import jit
@triton.jit
def add_rows(x): pass
@triton.autotune(configs=[], key=[])
@triton.jit(do_not_specialize=["n"])
def tuned(x): pass
@jit
def bare(x): pass
def launcher(x): pass
"""


def analysis(bytes_min: int, flops: int, compute_time_us: float) -> Analysis:
    return Analysis(
        bytes_min=bytes_min, flops=flops, op_counts={}, roofline="memory", memory_time_us=1.0,
        compute_time_us=compute_time_us, bound_us=1.0, patterns=(),
    )  # fmt: skip


def measured_sides(*, compiled: bool) -> ComparisonResult:
    clockwork = SimulatedClockwork()
    times = {"candidate": 100.0, "eager": 200.0} | ({"compile": 110.0} if compiled else {})
    sides = [SimulatedSide(name, us, clockwork, 0.0) for name, us in times.items()]
    rounds = measure_rounds(sides, clockwork, Pace())
    assert isinstance(rounds, Rounds)
    return ComparisonResult(
        rounds=rounds, candidate=SideMeasures(1000, 99.0, 12.0),
        eager=SideMeasures(3000, 198.0, 25.0), compiled=SideMeasures(1000) if compiled else None,
        compile_error=None if compiled else "Unsupported: it broke",
        launches=(KernelLaunch("add_rows", 90.0), KernelLaunch("Memcpy DtoD", 10.0)), gpu=STATE,
    )  # fmt: skip


def figures(sides: ComparisonResult, facts: Analysis, *own_kernels: str) -> Measurement:
    return to_measurement(
        sides, shapes="x", analysis=facts, copy_gb_per_s=4000.0, own_kernels=set(own_kernels)
    )


def test_with_little_of_its_own_time_it_is_a_library_plan() -> None:
    sides, facts = measured_sides(compiled=True), analysis(200_000_000, 50_000_000, 1.0)
    assert figures(sides, facts, "none of them").library_plan == "library plan, 2 calls"
    found = figures(sides, facts, "add_rows")
    assert found.evolve(own_kernel_share=0.1).library_plan == ""
    assert found.evolve(own_kernel_share=0.09).library_plan == "library plan, 1 calls"
    assert found.evolve(own_kernel_share=None).library_plan == ""


def test_a_memory_bound_call_at_half_the_ceiling() -> None:
    facts = analysis(200_000_000, 50_000_000, 1.0)
    found = figures(measured_sides(compiled=True), facts, "add_rows")
    assert found.achieved_gb_per_s == pytest.approx(2000.0)
    assert (found.achieved_tflops, found.roofline_us) == (pytest.approx(0.5), pytest.approx(50.0))
    assert found.roofline_fraction == pytest.approx(0.5)
    assert found.vs_eager.value == pytest.approx(2.0)
    assert found.vs_compile.value == pytest.approx(1.1)
    assert (found.launches, found.own_kernel_share) == (2, pytest.approx(0.9))
    assert (found.library_calls, found.library_plan) == (1, "")
    assert (found.peak_memory_bytes, found.eager_peak_memory_bytes) == (1000, 3000)
    assert (found.energy_mj, found.candidate.do_bench_us) == (12.0, 99.0)
    assert (found.rounds, found.discarded_rounds) == (Pace().min_rounds, 0)
    assert set(found.round_medians_us) == {"candidate", "eager", "compile"}
    rounds = found.round_medians_us
    again = paired_ratio(rounds["compile"], rounds["candidate"])
    assert again.value == pytest.approx(found.vs_compile.value, rel=1e-4)
    # A signed record from before they were kept reads as it was written.
    assert "round_medians_us" not in found.evolve(round_medians_us={}).model_dump()


def test_a_compute_bound_call_is_held_against_the_compute_peak() -> None:
    found = figures(measured_sides(compiled=True), analysis(1000, 50_000_000, 80.0))
    assert found.roofline_fraction == pytest.approx(0.8)


def test_a_failed_torch_compile_leaves_its_reason() -> None:
    found = figures(measured_sides(compiled=False), analysis(1000, 1000, 1.0))
    assert (found.compiled, found.vs_compile) == (None, None)
    assert found.compile_error == "Unsupported: it broke"


def test_the_third_baseline_has_its_own_time_and_ratio() -> None:
    clockwork = SimulatedClockwork()
    times = {"candidate": 100.0, "eager": 200.0, "max-autotune": 105.0}
    sides = [SimulatedSide(name, us, clockwork, 0.0) for name, us in times.items()]
    rounds = measure_rounds(sides, clockwork, Pace())
    assert isinstance(rounds, Rounds)
    sides = dataclasses.replace(
        measured_sides(compiled=False), rounds=rounds, autotuned=SideMeasures(0, 104.0)
    )
    found = figures(sides, analysis(1000, 1000, 1.0))
    assert found.autotuned.do_bench_us == 104.0
    assert (found.vs_autotune.value, found.vs_compile) == (pytest.approx(1.05), None)


def test_own_kernels_are_those_under_a_jit_decorator() -> None:
    assert kernel_names(SOURCE) == {"add_rows", "tuned", "bare"}


def test_no_record_means_no_share() -> None:
    assert own_share([], {"add_rows"}) is None


def test_the_clock_is_in_the_record() -> None:
    check = ClockCheck(
        state="disputed", outside_us=100.0, outside_low_us=98.0, inside_us=50.0, volleys=12,
        calls=120,
    )  # fmt: skip
    sides = dataclasses.replace(measured_sides(compiled=False), clock=check)
    found = figures(sides, analysis(200_000_000, 50_000_000, 1.0))
    assert found.clock == check
    assert Measurement.model_validate_json(found.model_dump_json()) == found
