"""Selection of the kernels that stay in a model: right outputs, and faster than both baselines.

The model is timed in each form (eager, compiled, with its regions' kernels, as one kernel, regions
compiled), cold L2, in interleaved rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import one_line
from agentkernel.domain.nightly import Form
from agentkernel.domain.profile import Ratio, Timing
from agentkernel.domain.region import Kernel
from agentkernel.runtime import gpu_lock
from agentkernel.swap.end_to_end import EndToEndVerdict, ModelSource
from agentkernel.swap.swap import apply
from agentkernel.tools.profiler.nvml import GaugeMonitor, NvmlGauge, Reading
from agentkernel.tools.profiler.rounds import GaugeClock, Pace, Rounds, SideFailed, measure_rounds
from agentkernel.tools.profiler.timing.stopwatch import (
    CallTimer,
    Device,
    flush_bytes,
    subtract_event_time,
)
from agentkernel.tools.speedup import paired_ratio, summarise

if TYPE_CHECKING:
    from torch import nn


PLAINEST: tuple[Form, ...] = (
    "eager",
    "torch.compile",
    "regions",
    "one-region",
    "regions+torch.compile",
)
"""Of two forms that are equally fast the one that comes first is handed over."""
BASELINES: tuple[Form, ...] = ("eager", "torch.compile")
IN_PARTS: tuple[Form, ...] = ("regions", "regions+torch.compile")
"""With the kernels of the model's regions in, not the one for the whole."""
AS_WHOLE: tuple[Form, ...] = ("one-region",)
L2_MB = 60.0
"""Room for the largest L2 of the targets with one (H200: 50 MB)."""
WARM_CALLS = 3
Name = TypeVar("Name", bound=str)


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

    def __init__(self, name: str, bench: CallTimer, call: Callable[[], object]) -> None:
        self.name = name
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
) -> FormTimes:
    """Time one forward in each of `forms`, cold L2, in shuffled, interleaved rounds.

    `kernels` at "" stands for the whole model, in the form "one-region", which there is not without
    it. A form that raises stands in `failed`, and so does one in parts where no other kernel is.
    On "cpu" the processor's clock stands in, for tests. Raises what `apply` raises.
    """
    failed: dict[Form, str] = {}
    with torch.no_grad(), gpu_lock.shared():
        calls = _calls(loaded, kernels, parameters, device, forms, failed)
    return _times(time_calls(calls, failed, device, pace=pace, l2_mb=l2_mb), failed)


def time_calls(
    calls: Mapping[Name, Callable[[], object]],
    failed: dict[Name, str],
    device: str = "cuda",
    *,
    pace: Pace | None = None,
    l2_mb: float = L2_MB,
) -> Rounds:
    """Time warm `calls` of this process by name, cold L2, in shuffled, interleaved rounds, until
    the ratios to the last of them are known. One that raises goes to `failed`."""
    kind = cast("Device", device.partition(":")[0])
    with torch.no_grad(), gpu_lock.exclusive(), _clockwork(kind, device) as clockwork:
        bench = CallTimer(kind, flush_bytes(l2_mb) if kind == "cuda" else 1 << 16)
        sides = [InProcessSide(name, bench, call) for name, call in calls.items()]
        chosen = (pace or Pace()).evolve(flush_us=bench.flush_us())
        return _rounds(sides, clockwork, chosen, failed)


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


def best_form(times: FormTimes, forms: Sequence[Form] = PLAINEST) -> Form:
    """What to hand over: the faster of eager and torch.compile, or kernels (in one of `forms`)
    where they are surely (95% interval) faster than both; the plainer of two that are not surely
    different."""
    base = _baseline(times)
    best = base
    for form in forms:
        if (
            form in BASELINES
            or form not in times.timings
            or not all(
                _surely_faster(times, form, other) for other in BASELINES if other in times.timings
            )
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
    models: dict[Form, nn.Module] = dict.fromkeys(BASELINES, plain)
    for kind, whole in ((IN_PARTS, False), (AS_WHOLE, True)):
        some = {path: kernel for path, kernel in kernels.items() if whole is not bool(path)}
        if some and not set(kind).isdisjoint(forms):
            swapped = loaded.build(device)
            apply(swapped, some, parameters)
            models |= dict.fromkeys(kind, swapped)
    found: dict[Form, Callable[[], object]] = {}
    for form in forms:
        model = models.get(form)
        if model is None:
            if form not in AS_WHOLE:
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
    failed: dict[Name, str],
) -> Rounds:
    """Rounds of all sides that last; the first of them is the one that the others are measured
    against. A side that is lost goes to `failed`, and the others begin again."""
    left = list(reversed(sides))
    while left:
        found = measure_rounds(left, clockwork, pace, 0)
        if not isinstance(found, SideFailed):
            return found
        failed[cast("Name", found.side)] = f"{found.reason}: {found.log}"
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


MOST_TRIES = 4
"""Timings of the whole model beside the first one: each compiles it anew."""
Timed = Callable[[Mapping[str, Kernel]], FormTimes]


@dataclass(frozen=True)
class FasterKernels:
    """The kernels that are kept by path (none where a baseline is handed over), the signatures of
    those that are not, the form to hand over (never "one-region") and the times it rests on."""

    kernels: Mapping[str, Kernel]
    dropped: tuple[str, ...]
    form: Form
    times: FormTimes
    tries: int = 0


def select_faster(
    kernels: Mapping[str, Kernel], timed: Timed, *, most_tries: int = MOST_TRIES
) -> FasterKernels:
    """Keep the kernels with which the whole model is surely faster than both baselines.

    Where all of them together are not, the half that gained the most by itself is tried, and its
    half; where that is no better, each group of one signature is left out in turn, the one that
    gained the least by itself first, and stays out where the whole is faster without it. `timed`
    times the model with some of the kernels; it is asked at most 1 + `most_tries` times.
    """
    names = tuple(strongest_first(kernels))
    search = _UsefulSearch(kernels, timed, most_tries, names, timed(kernels))
    while search.open and search.better(search.names[: (len(search.names) + 1) // 2]):
        pass
    for name in reversed(search.names):
        if search.open:
            search.better(tuple(other for other in search.names if other != name))
    form = best_form(search.times, IN_PARTS)
    kept = {} if form in BASELINES else with_signatures(kernels, search.names)
    dropped = tuple(name for name in sorted(names) if name not in signatures_of(kept))
    return FasterKernels(kept, dropped, form, search.times, search.tries)


@dataclass
class _UsefulSearch:
    """The best choice of signatures so far, the strongest first, and its times."""

    kernels: Mapping[str, Kernel]
    timed: Timed
    most: int
    names: tuple[str, ...]
    times: FormTimes
    tries: int = 0
    asked: set[frozenset[str]] = field(default_factory=set)

    @property
    def open(self) -> bool:
        """Whether fewer may be better, and may be asked for."""
        few = len(self.names) < 2 or self.tries >= self.most
        return not few and best_form(self.times, IN_PARTS) in BASELINES

    def better(self, names: tuple[str, ...]) -> bool:
        """Time the model with these alone; they are the choice where it is faster."""
        if frozenset(names) in self.asked:
            return False
        self.asked.add(frozenset(names))
        self.tries += 1
        times = self.timed(with_signatures(self.kernels, names))
        kept = best_form(times, IN_PARTS) not in BASELINES
        found = kept or _gain(times) > _gain(self.times)
        if found:
            self.names, self.times = names, times
        return found


def signatures_of(kernels: Mapping[str, Kernel]) -> set[str]:
    """Which regions' kernels these are."""
    return {kernel.key.signature for kernel in kernels.values()}


def with_signatures(kernels: Mapping[str, Kernel], names: Sequence[str]) -> dict[str, Kernel]:
    """Those of `kernels` whose signature is one of `names`."""
    return {path: item for path, item in kernels.items() if item.key.signature in names}


def strongest_first(kernels: Mapping[str, Kernel]) -> list[str]:
    """The signatures, by what their kernels gain by themselves."""
    gains = {item.key.signature: item.speedup or 0.0 for item in kernels.values()}
    return sorted(gains, key=lambda name: (-gains[name], name))


def _gain(times: FormTimes) -> float:
    """The best form in parts against the faster baseline; 0 where none has a time."""
    found = [
        min((ratio.value for other, ratio in ratios.items() if other in BASELINES), default=0.0)
        for form, ratios in times.ratios.items()
        if form in IN_PARTS
    ]
    return max(found, default=0.0)


MOST_CHECKS = 6
"""Checks of the whole model beside the first one."""
Checked = Callable[[Mapping[str, Kernel]], EndToEndVerdict]


@dataclass(frozen=True)
class CorrectKernels:
    """The kernels by path with which the outputs are right, the verdict on them (on all, where no
    choice is right), and by signature why the others are left out."""

    kernels: Mapping[str, Kernel]
    verdict: EndToEndVerdict
    left_out: Mapping[str, str]
    checks: int = 1


def select_correct(
    kernels: Mapping[str, Kernel], checked: Checked, *, most_checks: int = MOST_CHECKS
) -> CorrectKernels:
    """Take in all of the kernels, or else half by half those with which the outputs stay right.

    Each kernel is right by itself, but their errors add up. Those of one signature go in or out
    together, the one that gained the most by itself is asked for first. `checked` judges the model
    with some of the kernels; it is asked at most 1 + `most_checks` times.
    """
    first = checked(kernels)
    if first.accepted:
        return CorrectKernels(kernels, first, {})
    names = strongest_first(kernels)
    if not first.provable or not names:
        return CorrectKernels({}, first, dict.fromkeys(names, first.reason))
    search = _Search(kernels, checked, most_checks)
    kept = search.add((), tuple(names), first.reason)
    return CorrectKernels(
        with_signatures(kernels, kept) if kept else {},
        search.verdict or first,
        search.left_out,
        1 + search.checks,
    )


@dataclass
class _Search:
    """What is known so far. `verdict` is that on the largest choice that was right."""

    kernels: Mapping[str, Kernel]
    checked: Checked
    most: int
    checks: int = 0
    verdict: EndToEndVerdict | None = None
    left_out: dict[str, str] = field(default_factory=dict)

    def add(
        self, kept: tuple[str, ...], group: Sequence[str], refusal: str | None = None
    ) -> tuple[str, ...]:
        """`kept` and what of `group` it stays right with; `refusal`: all of both were asked for
        already, and this was wrong."""
        if refusal is None:
            if self.checks >= self.most:
                self.left_out.update(dict.fromkeys(group, f"not tried in {self.most} checks"))
                return kept
            self.checks += 1
            both = (*kept, *group)
            verdict = self.checked(with_signatures(self.kernels, both))
            if verdict.accepted:
                self.verdict = verdict
                return both
            refusal = verdict.reason
        if len(group) == 1:
            self.left_out[group[0]] = refusal
            return kept
        middle = (len(group) + 1) // 2
        first, second = group[:middle], group[middle:]
        more = self.add(kept, first)
        all_in = len(more) == len(kept) + len(first)
        return self.add(more, second, refusal if all_in else None)
