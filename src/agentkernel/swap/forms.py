"""In which form is the whole model the fastest: as it is, compiled, with kernels, or both?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, cast

import torch

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import one_line
from agentkernel.domain.night import Form
from agentkernel.domain.profile import Ratio, Timing
from agentkernel.domain.region import Kernel
from agentkernel.runtime import gate
from agentkernel.swap.model import apply
from agentkernel.swap.whole import ModelSource
from agentkernel.tools.profiler.nvml import GaugeMonitor, NvmlGauge, Reading
from agentkernel.tools.profiler.rounds import GaugeClock, Pace, Rounds, SideFailed, measure_rounds
from agentkernel.tools.profiler.timing.bench import (
    CallTimer,
    Device,
    flush_bytes,
    subtract_event_time,
)
from agentkernel.tools.ratio import paired_ratio, summarise

if TYPE_CHECKING:
    from torch import nn

PLAINEST: tuple[Form, ...] = ("eager", "torch.compile", "regions", "regions+torch.compile")
"""Of two forms that are equally fast the one that comes first is handed over."""
BASELINES: tuple[Form, ...] = ("eager", "torch.compile")
L2_MB = 60.0
"""Room for the largest L2 of the targets with one (H200: 50 MB)."""
WARM_CALLS = 3


class FormTimes(Frozen):
    """`timings` of one cold call by form, `failed` why another has none; `ratios[form][baseline]`
    is baseline time / time of the form, paired over `rounds` interleaved rounds."""

    timings: dict[Form, Timing]
    failed: dict[Form, str]
    ratios: dict[Form, dict[Form, Ratio]]
    rounds: int = 0

    def ratio(self, form: Form, baseline: Form) -> Ratio | None:
        """Speedup of `form` over `baseline`; None where either has no time."""
        return self.ratios.get(form, {}).get(baseline)


class InProcessSide:
    """One form in this process. Verified code: its times need no second clock."""

    def __init__(self, name: Form, bench: CallTimer, call: Callable[[], object]) -> None:
        self.name: str = name
        self._bench = bench
        self._call = call
        self._event_us = bench.event_us()
        self._last_us = 0.0

    def block(self, calls: int) -> tuple[float, ...] | SideFailed:
        """Microseconds of `calls` cold calls."""
        try:
            found = subtract_event_time(
                self._bench.block(self._call, calls, self._last_us), self._event_us
            )
        except Exception as error:  # noqa: BLE001 - a form that raises has no time
            return SideFailed(side=self.name, reason="raised", log=one_line(error))
        self._last_us = found[0]
        return found


class UngaugedClock:
    """The clock of a machine without a gauge."""

    def now(self) -> float:
        """Seconds."""
        return time.monotonic()

    def between(self, begin_s: float, end_s: float) -> tuple[Reading, ...]:
        """Nothing is known about the clocks."""
        return ()


def time_forms(
    loaded: ModelSource,
    kernels: Mapping[str, Kernel],
    parameters: Mapping[str, tuple[str, ...]] | None = None,
    device: str = "cuda",
    *,
    forms: Sequence[Form] = PLAINEST,
    pace: Pace | None = None,
    l2_mb: float = L2_MB,
    seed: int = 0,
) -> FormTimes:
    """Time one forward in each of `forms`, cold L2, in shuffled, interleaved rounds.

    A form that raises stands in `failed`, and so does one with kernels where `kernels` is empty.
    On "cpu" the processor's clock stands in, for tests. Raises what `apply` raises.
    """
    kind = cast("Device", device.partition(":")[0])
    failed: dict[Form, str] = {}
    with torch.no_grad(), gate.shared():
        calls = _calls(loaded, kernels, parameters, device, forms, failed)
    with torch.no_grad(), gate.exclusive(), _clockwork(kind, device) as clockwork:
        bench = CallTimer(kind, flush_bytes(l2_mb) if kind == "cuda" else 1 << 16)
        sides = [InProcessSide(form, bench, call) for form, call in calls.items()]
        chosen = (pace or Pace()).model_copy(update={"flush_us": bench.flush_us()})
        rounds = _rounds(sides, clockwork, chosen, seed, failed)
    return _times(rounds, failed)


def times_of(medians_us: Mapping[Form, Sequence[float]]) -> dict[Form, dict[Form, Ratio]]:
    """All paired ratios of block medians: [form][baseline] is baseline time / form time."""
    return {
        form: {
            other: paired_ratio(theirs, own)
            for other, theirs in medians_us.items()
            if other != form
        }
        for form, own in medians_us.items()
    }


def best_form(times: FormTimes) -> Form:
    """What to hand over: the faster of eager and torch.compile, or kernels where they are surely
    (95% interval) faster than both; the plainer of two that are not surely different."""
    base = _baseline(times)
    best = base
    for form in PLAINEST[2:]:
        if form not in times.timings or not all(
            _surely_faster(times, form, other) for other in BASELINES if other in times.timings
        ):
            continue
        if best == base or _surely_faster(times, form, best):
            best = form
    return best


def _baseline(times: FormTimes) -> Form:
    ratio = times.ratio("torch.compile", "eager")
    if "eager" not in times.timings and "torch.compile" in times.timings:
        return "torch.compile"
    return "torch.compile" if ratio is not None and ratio.value > 1.0 else "eager"


def _surely_faster(times: FormTimes, form: Form, other: Form) -> bool:
    ratio = times.ratio(form, other)
    return ratio is not None and ratio.low > 1.0


@contextmanager
def _clockwork(kind: Device, device: str) -> Iterator[GaugeClock]:
    if kind == "cpu":
        yield UngaugedClock()
        return
    number = torch.device(device).index or 0
    uuid = str(torch.cuda.get_device_properties(number).uuid).removeprefix("GPU-")
    with ExitStack() as open_until:
        open_until.enter_context(torch.cuda.device(number))
        gauge = NvmlGauge(f"GPU-{uuid}", number)
        yield open_until.enter_context(GaugeMonitor(gauge))


def _calls(
    loaded: ModelSource,
    kernels: Mapping[str, Kernel],
    parameters: Mapping[str, tuple[str, ...]] | None,
    device: str,
    forms: Sequence[Form],
    failed: dict[Form, str],
) -> dict[Form, Callable[[], object]]:
    """A warm call of each form; those that raise go to `failed`."""
    # Models of one class share dynamo's cache, which after eight of them compiles nothing more.
    torch.compiler.reset()
    plain = loaded.build(device)
    given = loaded.make_call(device, 0)
    swapped: nn.Module | None = None
    if kernels and any(form not in BASELINES for form in forms):
        swapped = loaded.build(device)
        apply(swapped, kernels, parameters)
    found: dict[Form, Callable[[], object]] = {}
    for form in forms:
        model = plain if form in BASELINES else swapped
        if model is None:
            failed[form] = "no kernel to put in"
            continue
        run = torch.compile(model) if form.endswith("torch.compile") else model
        call = _bound(run, tuple(given.args), dict(given.kwargs))
        try:
            for _ in range(WARM_CALLS):
                call()
            found[form] = call
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises, the others go on
            failed[form] = f"{type(error).__name__}: {one_line(error, 200)}"
    return found


def _bound(
    model: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> Callable[[], object]:
    return lambda: model(*args, **kwargs)


def _rounds(
    sides: list[InProcessSide],
    clockwork: GaugeClock,
    pace: Pace,
    seed: int,
    failed: dict[Form, str],
) -> Rounds:
    """Rounds of all sides that last; the first of them is the one that the others are measured
    against. A side that is lost goes to `failed`, and the others begin again."""
    left = list(reversed(sides))
    while left:
        found = measure_rounds(left, clockwork, pace, seed)
        if not isinstance(found, SideFailed):
            return found
        failed[cast("Form", found.side)] = f"{found.reason}: {found.log}"
        left = [side for side in left if side.name != found.side]
    return Rounds()


def _times(rounds: Rounds, failed: dict[Form, str]) -> FormTimes:
    names = [form for form in PLAINEST if form in rounds.sides()]
    if not names and rounds.discarded:
        failed.update(dict.fromkeys(PLAINEST, "the GPU was throttled in all rounds"))
    return FormTimes(
        timings={form: summarise(rounds.samples(form)) for form in names},
        failed=failed,
        ratios=times_of({form: rounds.medians(form) for form in names}),
        rounds=len(rounds.kept),
    )
