"""Profiles of a candidate: measured times and estimated times, never mixed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentkernel.domain.base import Frozen
from agentkernel.domain.verdict import TimingDisputed

Call = Literal["faster", "slower", "same", "too_noisy"]
"""What a ratio says: beyond 1% either way for sure, about equal, or not known well enough."""
LEFT_OUT = "left out on request"
"""What stands in the place of a baseline's error where nobody wanted its time."""
MatmulPrecision = Literal["highest", "high", "medium"]
"""How far PyTorch may round fp32 operands of its own products: `set_float32_matmul_precision`."""
ClockState = Literal["agrees", "disputed", "outside_shorter", "too_short", "unknown"]
"""How the two clocks stand to one another; see `ClockCheck.state`."""


def unmeasured_words(error: str) -> str:
    """`left out on request`, or `failed: ` with the last line of what went wrong."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    last = lines[-1][:200] if lines else "it failed"
    return last if error == LEFT_OUT else f"failed: {last}"


class KernelResources(Frozen):
    """What the cross-compiler says of a launch. `occupancy`: share of an SM's warps, 0 to 1."""

    name: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    registers: int | None
    spill_bytes: int | None
    """Local memory a thread, in bytes: spills and stack. None where the tool gives none (AMD)."""
    shared_bytes: int
    occupancy: float | None
    tensor_core: str | None
    """"wgmma.f16", "wgmma.bf16", "wgmma" (operands of other types), "tcgen05", "mma", "mfma" or
    None."""
    constants: dict[str, int | float | bool | str]
    compile_s: float
    error: str | None = None
    fits: bool = True
    """False where shared memory or registers go past the target's limit, or compilation failed."""
    bytes_touched: int = 0
    """Storage of the distinct tensor arguments of this launch: an estimate of its DRAM traffic."""
    line: int | None = None
    """The candidate's line that `error` is about, where known."""


class OpCost(Frozen):
    """What one torch op moves and computes at most: each operand once, multiply and add apart."""

    op: str
    dtype: str
    bytes_moved: int
    flops: int
    kind: Literal["matmul", "convolution", "attention", "pointwise", "reduction", "copy"]
    channels: int | None = None
    """Of a convolution: those that come into a group; 0 where each is a group of its own."""
    steps: int | None = None
    """Of a recurrent layer: those through time, one after the other."""


class CompileReport(Frozen):
    """All launches of one call at the real shapes, compiled for `target` (an architecture name)."""

    target: str
    kernels: tuple[KernelResources, ...]
    library_ops: tuple[str, ...] = ()
    """Torch compute ops that `forward` calls beside the kernels, e.g. `aten.mm`."""
    library_costs: tuple[OpCost, ...] = ()
    """Bytes and FLOPs of those ops and of fills, in the order of the calls."""

    @property
    def traffic(self) -> tuple[int, ...]:
        """Bytes touched by each launch, in order."""
        return tuple(kernel.bytes_touched for kernel in self.kernels)

    @property
    def launches(self) -> tuple[tuple[KernelResources, int], ...]:
        """Of launches that compiled to the same the first, with their number."""
        found: dict[str, list[KernelResources]] = {}
        for kernel in self.kernels:
            found.setdefault(kernel.evolve(compile_s=0.0).model_dump_json(), []).append(kernel)
        return tuple((same[0], len(same)) for same in found.values())

    @property
    def fits(self) -> bool:
        """True where every kernel compiled and keeps the target's limits."""
        return all(kernel.fits for kernel in self.kernels)

    @property
    def spills(self) -> bool:
        """True where any kernel uses local memory."""
        return any(kernel.spill_bytes for kernel in self.kernels)


class Estimate(Frozen):
    """A time that nobody measured: from the roofline of `target` and the launches."""

    target: str
    time_us: float
    bytes_moved: int
    flops: int
    bound: str
    assumptions: tuple[str, ...] = ()


class Timing(Frozen):
    """Device time of one call in microseconds over `samples` calls, cold L2."""

    median_us: float
    p10_us: float
    p90_us: float
    samples: int
    do_bench_us: float | None = None


class Ratio(Frozen):
    """A speedup (baseline time / candidate time) with its 95% bootstrap interval.

    `low99` and `high99` are the 99% interval, on which `call` rests; None in records from before
    calls were made.
    """

    value: float
    low: float
    high: float
    low99: float | None = None
    high99: float | None = None
    call: Call | None = None


class ClockCheck(Frozen):
    """One call by two clocks, in microseconds: CUDA events inside the process that runs it, and
    the parent's wall clock from outside, of which no line runs in that process.

    `outside_us` is (wall of a batch - wall of an empty one) / calls, the median over `volleys`;
    `outside_low_us` the lower end of its 99% interval. `state`: "disputed" where the
    outside is surely longer than the inside by more than 5%; "outside_shorter" where it is shorter
    by more than 5% (the host's launches hide behind the flush, which favours nobody);
    "too_short" below 50 us, where only a difference beyond 10 us counts; "unknown" after fewer
    than three batches.
    """

    state: ClockState
    outside_us: float
    outside_low_us: float
    inside_us: float
    volleys: int
    calls: int
    checked_outputs: int = 0
    """Timed calls whose outputs were compared with eager's answer to the same input."""
    fresh_inputs: bool = True
    """False where the reference refuses varied inputs: all calls then had the same ones."""


class GpuState(Frozen):
    """NVML's view at the time of measuring."""

    name: str
    driver: str
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle_reasons: tuple[str, ...] = ()
    ecc: bool | None = None
    other_processes: int | None = None


LIBRARY_PLAN = 0.1
"""Of a call's device time: with less in its own kernels, a candidate is a plan of library calls."""


class Measurement(Frozen):
    """What one GPU did with the candidate and the baselines on one shape set."""

    shapes: str
    candidate: Timing
    eager: Timing
    compiled: Timing | None
    """None where torch.compile failed; `compile_error` says why."""
    compile_error: str | None = None
    autotuned: Timing | None = None
    """torch.compile's max-autotune; None where it was left out, failed or took too long, and
    `autotune_error` says which."""
    autotune_error: str | None = None
    autotuned_mode: str | None = None
    """The faster of "max-autotune" and "max-autotune-no-cudagraphs", which `autotuned` is."""
    vs_eager: Ratio
    vs_compile: Ratio | None
    vs_autotune: Ratio | None = None
    achieved_gb_per_s: float
    achieved_tflops: float
    copy_gb_per_s: float
    """Copy ceiling measured in the same session."""
    roofline_us: float
    roofline_fraction: float
    """roofline_us / candidate median: 1 is the ceiling."""
    launches: int
    own_kernel_share: float | None = None
    library_calls: int = 0
    """Launches of one call that are none of the candidate's own kernels."""
    peak_memory_bytes: int
    eager_peak_memory_bytes: int
    energy_mj: float | None = None
    """Millijoules a call, from NVML's power over a sustained run."""
    eager_energy_mj: float | None = None
    gpu: GpuState
    baselines_matmul: MatmulPrecision = "highest"
    """What eager and torch.compile were allowed as they were timed: no less than the candidate."""
    rounds: int = 0
    """Interleaved rounds (one block a side) that the ratios rest on."""
    discarded_rounds: int = 0
    """Rounds set aside because the GPU throttled in them."""
    round_medians_us: dict[str, tuple[float, ...]] = Field(
        default_factory=dict, exclude_if=lambda rounds: not rounds
    )
    """By side, the median of its calls in each round, in order: the ratios are made of these. One
    from before they were kept reads, and is signed, as ever."""
    clock: ClockCheck | None = None
    """The candidate by both clocks; None where the device shares no memory between processes."""
    eager_clock: ClockCheck | None = None

    @property
    def library_plan(self) -> str:
        """What a candidate is called whose own kernels have less than LIBRARY_PLAN of the time; ""
        for any other."""
        share = self.own_kernel_share
        few = share is not None and share < LIBRARY_PLAN
        return f"library plan, {self.library_calls} calls" if few else ""


class ProfileFailed(Frozen):
    """The candidate (or a baseline) could not be measured: who stopped answering, and why.

    `side` is "candidate", "eager", "gpu" (throttled throughout), or what stood by ("twin",
    "inputs"); only the first is the candidate's fault. `reason` "raised", "died", "timeout",
    "memory", "malformed", "throttled" or an exception in one line. What only a timed candidate does
    has names too: "timing_disputed" (then `timing` holds both figures), "wrong_output",
    "stale_output", "missing_output", "overwritten_output", "inputs_changed", "weights_changed",
    "side_work" (threads that outlive a call), "flush_skipped".
    """

    side: str
    reason: str
    log: str = ""
    timing: TimingDisputed | None = None


class Profile(Frozen):
    """Everything known about a candidate's speed. `measurements` is empty without a GPU."""

    candidate: str
    target: str
    report: CompileReport | None
    estimate: Estimate
    baseline_estimate: Estimate | None = None
    """Eager PyTorch, one library kernel an op, on the same roofline."""
    measurements: tuple[Measurement, ...] = ()
    measured_on: str | None = None

    @property
    def measured(self) -> bool:
        """True where a GPU ran it."""
        return bool(self.measurements)
