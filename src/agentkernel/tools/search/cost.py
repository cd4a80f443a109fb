"""Cost of a drop-in from what its binaries hold: what orders schedules before they are measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from agentkernel.domain.profile import CompileReport, KernelResources, OpCost
from agentkernel.domain.target import Target
from agentkernel.domain.verdict import Precision
from agentkernel.tools.compile.instructions import Count, Instructions
from agentkernel.tools.roofline.model import (
    KERNEL_SHARE,
    LAUNCH_US,
    bandwidth,
    busy_share,
    flop_time_us,
    library_call_us,
    wave_share,
)

SCHEDULERS = 4
"""Warps that an SM issues from in one cycle (CUDA C++ Programming Guide, 8.0 on)."""
SPECIAL_CYCLES = 2
"""Cycles in which an SM serves one warp's special function: 16 lanes a cycle (same, throughput)."""
LATENCY_NS = 800.0
"""From a load to its data in DRAM under load; with the bandwidth it says how much must be on its
way (Little's law; Volkov, "Better Performance at Lower Occupancy", GTC 2010)."""
PROGRAM_NS = 1000.0
"""What a program takes at least, one after the other in its place on an SM: a load, what follows
from it, a store."""


class MatrixWork(NamedTuple):
    """What the kernels of a drop-in multiply on matrix units, all together."""

    cost: OpCost
    precision: Precision


def cost_us(
    report: CompileReport,
    instructions: Sequence[Instructions | None],
    target: Target,
    work: MatrixWork | None = None,
) -> float:
    """Microseconds of all launches and library calls, one after the other. `work` is the kernels'
    with matrix instructions, which share it evenly."""
    launches = list(zip_longest(report.kernels, instructions[: len(report.kernels)]))
    shared_by = sum(counts is not None and counts.matrix > 0 for _, counts in launches)
    matrix_us = _matrix_us(work, target) / shared_by if work and shared_by else 0.0
    own = sum(
        kernel_us(kernel, counts, target, matrix_us * _rate(work, kernel, target))
        for kernel, counts in launches
    )
    return own + sum(library_call_us(cost, target) for cost in report.library_costs)


def _matrix_us(work: MatrixWork, target: Target) -> float:
    """At what a kernel reaches of the peak of the operands' type and precision."""
    return flop_time_us(work.cost, target, work.precision) / KERNEL_SHARE


def _rate(work: MatrixWork | None, kernel: KernelResources, target: Target) -> float:
    """Of a product's time, what it takes where fp32 operands are not multiplied as fp16 planes."""
    if work is None or work.cost.dtype != "float32" or kernel.tensor_core == "wgmma.f16":
        return 1.0
    peaks = target.peak_tflops
    strict = work.precision == "strict" and target.has_wgmma
    return peaks["fp16"].value / peaks["tf32"].value if strict else 1.0


def kernel_us(
    kernel: KernelResources, counts: Instructions | None, target: Target, matrix_us: float = 0.0
) -> float:
    """A launch, and the longest of what its bytes, its instructions, its special functions and its
    programs one after the other take. One with matrix instructions takes at least `matrix_us`,
    longer by what its last, partial wave leaves idle."""
    memory_us = kernel.bytes_touched / (bandwidth(target) * 1e3)
    if counts is None or counts.matrix:
        # How often a product's loops run does not follow from its bytes, which programs share.
        tensor_us = matrix_us / wave_share(kernel, target) if counts else 0.0
        return LAUNCH_US + max(memory_us / busy_share(kernel, target), tensor_us)
    programs = max(1, math.prod(kernel.grid))
    whole = _whole(counts, kernel, programs)
    at_once = _resident(kernel, target) * int(target.sm_count.value)
    waves = math.ceil(programs / at_once)
    tail = waves * at_once / programs if waves > 1 else 1 / busy_share(kernel, target)
    warp_cycles = programs * kernel.num_warps / (target.sm_count.value * target.clock_mhz.value)
    issue_us = whole.issued * warp_cycles / SCHEDULERS
    special_us = whole.special * warp_cycles * SPECIAL_CYCLES
    reached = min(1.0, _in_flight(counts, kernel, min(programs, at_once)) / _needed(target))
    return LAUNCH_US + max(
        memory_us / reached, max(issue_us, special_us) * tail, waves * PROGRAM_NS / 1e3
    )


def _resident(kernel: KernelResources, target: Target) -> int:
    """Programs on an SM at once."""
    warps = int(target.threads_per_sm.value) // target.warp_size
    return max(1, round((kernel.occupancy or 1.0) * warps / kernel.num_warps))


def _whole(counts: Instructions, kernel: KernelResources, programs: int) -> Count:
    """One thread of a program from its begin to its end. How often its loops run follows from the
    bytes of a program, of which the loops take what the rest leaves."""
    total, loops = counts.straight, counts.loops
    step = max((loop.load_bytes for loop in loops), default=0)
    step += sum(loop.store_bytes for loop in loops)
    if not step:
        return total
    lanes = kernel.num_warps * 32
    outside = total.load_bytes + total.store_bytes
    times = max(1.0, (kernel.bytes_touched / programs / lanes - outside) / step)
    for loop in loops:
        total += loop.times(math.ceil(times))
    return total


def _in_flight(counts: Instructions, kernel: KernelResources, programs: int) -> float:
    """Bytes that may be on their way at once: of every resident program, one loop's loads or all
    that it loads without a loop."""
    loads = max((item.load_bytes for item in (counts.straight, *counts.loops)), default=0)
    return float(loads * kernel.num_warps * 32 * programs) or math.inf


def _needed(target: Target) -> float:
    return bandwidth(target) * LATENCY_NS
