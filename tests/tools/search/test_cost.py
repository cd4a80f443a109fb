"""The cost of a kernel follows what bounds it."""

from __future__ import annotations

import math

import pytest

from agentkernel.domain.profile import CompileReport, KernelResources, OpCost
from agentkernel.tools.compile.instructions import Count, Instructions
from agentkernel.tools.roofline.model import KERNEL_SHARE, LAUNCH_US, bandwidth, flop_time_us
from agentkernel.tools.search.cost import MatrixWork, cost_us, kernel_us
from agentkernel.tools.targets import find_target

TARGET = find_target("h200").target
BYTES = 1 << 29


def kernel(programs: int, warps: int = 4, occupancy: float = 1.0) -> KernelResources:
    return KernelResources(
        name="k", grid=(programs, 1, 1), num_warps=warps, num_stages=1, registers=32,
        spill_bytes=0, shared_bytes=0, occupancy=occupancy, tensor_core=None, constants={},
        compile_s=0.1, bytes_touched=BYTES,
    )  # fmt: skip


def pointwise(issued: int, special: int = 0) -> Instructions:
    """8 elements of 4 bytes a thread, in and out."""
    return Instructions(Count(issued, special, 0, 32, 32, 2))


PROGRAMS = BYTES // (64 * 128)
MEMORY_US = BYTES / bandwidth(TARGET) / 1e3


def test_a_copy_takes_as_long_as_its_bytes() -> None:
    assert kernel_us(kernel(PROGRAMS), pointwise(40), TARGET) == pytest.approx(
        LAUNCH_US + MEMORY_US
    )


def test_many_instructions_an_element_bound_it() -> None:
    heavy = kernel_us(kernel(PROGRAMS), pointwise(8 * 100), TARGET)
    assert heavy > 1.4 * MEMORY_US
    assert kernel_us(kernel(PROGRAMS), pointwise(8 * 50), TARGET) < 1.1 * MEMORY_US
    assert kernel_us(kernel(PROGRAMS), pointwise(40, special=8 * 20), TARGET) > 1.1 * MEMORY_US


def test_few_bytes_on_their_way_do_not_fill_the_bandwidth() -> None:
    assert kernel_us(kernel(PROGRAMS, occupancy=0.125), pointwise(40), TARGET) > 1.2 * MEMORY_US
    assert kernel_us(kernel(8), pointwise(40), TARGET) > 10 * MEMORY_US


def test_a_loop_runs_as_often_as_its_bytes_say() -> None:
    rows = 4096
    lanes = 128
    loop = Count(issued=200, load_bytes=16, store_bytes=16)
    per_program = BYTES / rows / lanes / 32
    issue_us = (
        math.ceil(per_program) * 200 * rows * 4 / 4
        / (TARGET.sm_count.value * TARGET.clock_mhz.value)
    )  # fmt: skip
    found = kernel_us(kernel(rows), Instructions(Count(), (loop,)), TARGET)
    assert found == pytest.approx(LAUNCH_US + max(issue_us, MEMORY_US), rel=0.35)
    assert found > LAUNCH_US + issue_us - 1e-6


def test_all_launches_count() -> None:
    one, counts = kernel(PROGRAMS), pointwise(40)
    report = CompileReport(target="h200", kernels=(one, one))
    assert cost_us(report, (counts, counts), TARGET) == pytest.approx(
        2 * kernel_us(one, counts, TARGET)
    )
    assert cost_us(report, (), TARGET) == pytest.approx(2 * kernel_us(one, None, TARGET))


def product(flops: int, dtype: str = "float16") -> MatrixWork:
    cost = OpCost(op="matmul", dtype=dtype, bytes_moved=0, flops=flops, kind="matmul")
    return MatrixWork(cost, "strict")


MULTIPLIES = Instructions(Count(issued=10), (Count(issued=50, matrix=8, load_bytes=64),))
SMS = int(TARGET.sm_count.value)


def test_a_product_takes_the_longer_of_its_bytes_and_its_multiplications() -> None:
    full = kernel(SMS, warps=8, occupancy=0.125)
    report = CompileReport(target="h200", kernels=(full,))
    long, short = product(1 << 40), product(1 << 20)
    at_peak = flop_time_us(long.cost, TARGET, "strict") / KERNEL_SHARE
    assert cost_us(report, (MULTIPLIES,), TARGET, long) == pytest.approx(LAUNCH_US + at_peak)
    assert cost_us(report, (MULTIPLIES,), TARGET, short) == pytest.approx(LAUNCH_US + MEMORY_US)
    assert cost_us(report, (MULTIPLIES,), TARGET, product(1 << 40, "float32")) > 2 * at_peak


def test_a_last_wave_of_one_program_takes_as_long_as_a_full_one() -> None:
    def with_programs(count: int) -> float:
        own = kernel(count, warps=8, occupancy=0.125)
        report = CompileReport(target="h200", kernels=(own,))
        return cost_us(report, (MULTIPLIES,), TARGET, product(1 << 40)) - LAUNCH_US

    assert with_programs(SMS + 1) == pytest.approx(with_programs(SMS) * 2 * SMS / (SMS + 1))
    assert with_programs(SMS // 2) == pytest.approx(2 * with_programs(SMS), rel=0.02)


def test_only_kernels_that_multiply_have_the_work() -> None:
    one, counts = kernel(PROGRAMS), pointwise(40)
    report = CompileReport(target="h200", kernels=(one, one))
    assert cost_us(report, (MULTIPLIES, counts), TARGET, product(1 << 42)) == pytest.approx(
        cost_us(CompileReport(target="h200", kernels=(one,)), (MULTIPLIES,), TARGET,
                product(1 << 42)) + kernel_us(one, counts, TARGET)
    )  # fmt: skip
    assert cost_us(report, (counts, counts), TARGET, product(1 << 42)) == pytest.approx(
        2 * kernel_us(one, counts, TARGET)
    )
