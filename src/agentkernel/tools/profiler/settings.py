"""How long may a profile take, and what does it include?"""

from __future__ import annotations

from agentkernel.domain.base import Frozen
from agentkernel.domain.profile import MatmulPrecision
from agentkernel.domain.rules import Precision
from agentkernel.tools.profiler.rounds import Pace


class ProfileSettings(Frozen):
    """Limits in seconds of wall time. `pace` holds for each shape set."""

    pace: Pace = Pace()
    shape_sets: tuple[int, ...] | None = None
    """Which shape sets to measure; None means all of them."""
    seed: int = 0
    precision: Precision = "strict"
    """Decides which compute peak the roofline is made of, and what the baselines may round."""
    compare_compile: bool = True
    """Without it torch.compile is left out, and `compile_error` says so."""
    max_autotune: bool = False
    """A third baseline: torch.compile with mode="max-autotune", in a process of its own. Without it
    `autotune_error` says that it was left out."""
    autotune_limit_s: float = 120.0
    """What that mode may take to compile one shape set; past it, it counts as failed."""
    extras: bool = True
    """do_bench, energy and the profiled call; peak memory is always measured."""
    records: bool = True
    """Of the extras, do_bench and the profiled call: what is shown and decides nothing."""
    energy_s: float = 0.25
    """Length of the sustained run that energy is read from; at least 0.2 s tells anything."""
    start_limit_s: float = 180.0
    """Starting a process, building the module, and its first calls with compilation."""
    compile_limit_s: float = 300.0
    """torch.compile of one shape set; past it the baseline counts as failed."""
    call_limit_s: float = 60.0
    """One block, do_bench or sustained run; past it the side counts as hanging."""
    allow_unsandboxed: bool = False
    keep_bytes: int = 1 << 30
    """A call whose inputs and outputs hold no more is kept ready from the start of a run: little
    beside what the judge and the search need of a GPU's memory. What holds more is in memory while
    it is timed, once for all sides."""


def baselines_matmul(precision: Precision, ambient: str) -> MatmulPrecision:
    """What PyTorch's own products may round while they are timed, under `precision`.

    Whoever allows a candidate TF32 could as well have set PyTorch's switch: a baseline that is kept
    in IEEE fp32 would make every such candidate look several times faster than it is. `ambient` is
    the process's `torch.get_float32_matmul_precision()`, which is kept where it allows more.
    """
    order: tuple[MatmulPrecision, ...] = ("highest", "high", "medium")
    allowed: dict[Precision, MatmulPrecision] = {
        "strict": "highest",
        "tf32": "high",
        "bf16": "medium",
    }
    found = next((item for item in order if item == ambient), order[0])
    return max(found, allowed[precision], key=order.index)
