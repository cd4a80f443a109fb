"""Cost of a drop-in from what its binaries hold: what orders schedules before they are measured."""

from __future__ import annotations

from agentkernel.domain.profile import CompileReport, KernelResources, OpCost
from agentkernel.domain.target import Target
from agentkernel.tools.roofline.model import LAUNCH_US, bandwidth, busy_share, flop_time_us


def cost_us(report: CompileReport, target: Target) -> float:
    """Microseconds of all launches and library calls, one after the other."""
    own = sum(kernel_us(kernel, target) for kernel in report.kernels)
    return own + sum(_library_us(cost, target) for cost in report.library_costs)


def kernel_us(kernel: KernelResources, target: Target) -> float:
    """The time of its bytes at the bandwidth that its grid can draw, and a launch."""
    memory_us = kernel.bytes_touched / (bandwidth(target) * 1e3)
    return LAUNCH_US + memory_us / busy_share(kernel, target)


def _library_us(cost: OpCost, target: Target) -> float:
    memory_us = cost.bytes_moved / (bandwidth(target) * 1e3)
    return LAUNCH_US + max(memory_us, flop_time_us(cost, target, "eager"))
