"""One timing batch under the clock of the parent, with the checks of its outputs and its clocks.

The clock starts before the inputs are written and stops after the parent has read the outputs:
what is computed earlier has no inputs, what is computed later is not read. See docs/timing.md.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentkernel.domain.profile import ClockCheck, ClockState, ProfileFailed
from agentkernel.domain.verdict import TimingDisputed
from agentkernel.tools.profiler.rounds import RequestChannel, SideFailed, is_time
from agentkernel.tools.profiler.timing.arena import (
    ARMED,
    DONE,
    GO,
    HEADER,
    KEEP,
    PROGRESS,
    RELEASE,
    STOP,
    Buffers,
    Layout,
    flush_regions,
    spans,
)
from agentkernel.tools.profiler.timing.inputs import FreshInputs, FreshInputsInPlace
from agentkernel.tools.profiler.timing.stopwatch import subtract_event_time

if TYPE_CHECKING:
    import torch

    from agentkernel.tools.sandbox.protocol import JSON


TOLERANCE = 0.05
"""Relative difference of the clocks beyond which one of them is not believed."""
SHORT_US = 50.0
"""Below this the start and end of kernels weigh too much for the clocks to be compared."""
SLACK_US = {"cuda": 3.0, "cpu": 60.0}
"""A kernel boundary and two event records a call, which the batch without the call lacks. On the
CPU (the tests) the parent shares two cores with what it measures."""
SHORT_SLACK_US = 10.0
"""The same below `SHORT_US`, where a difference must be plain to count."""
FEWEST = 3


class ClockPair(NamedTuple):
    """A batch: its calls, the wall microseconds outside, the median call inside."""

    calls: int
    wall_us: float
    inside_us: float = 0.0


class EmptyBatchCost(NamedTuple):
    """What batches without the call take: `start_us` and `call_us` for each turn of the loop, and
    how far each of them is from that (`off_us`)."""

    start_us: float
    call_us: float
    off_us: tuple[float, ...] = ()

    def wall_us(self, calls: int) -> float:
        """Wall microseconds of an empty batch of `calls` turns."""
        return self.start_us + self.call_us * calls


def fit_empty_batches(pairs: Sequence[ClockPair]) -> EmptyBatchCost:
    """Theil-Sen line through the empty batches of different lengths (Sen, JASA 63, 1968): half of
    the points but a few may be outliers. With one length alone all of it is start."""
    slopes = [
        (b.wall_us - a.wall_us) / (b.calls - a.calls)
        for index, a in enumerate(pairs)
        for b in pairs[index + 1 :]
        if a.calls != b.calls
    ]
    slope = max(median(slopes), 0.0) if slopes else 0.0
    starts = [item.wall_us - slope * item.calls for item in pairs]
    start = median(starts)
    return EmptyBatchCost(start, slope, tuple(item - start for item in starts))


def compare_clocks(
    pairs: Sequence[ClockPair],
    empty: EmptyBatchCost,
    *,
    device: str = "cuda",
    inside_us: float | None = None,
    checked: int = 0,
    fresh: bool = True,
    short_us: float = SHORT_US,
) -> ClockCheck | None:
    """Both clocks on the same batches (or `inside_us` against them); None without a batch."""
    if not pairs:
        return None
    outside = [(item.wall_us - empty.wall_us(item.calls)) / item.calls for item in pairs]
    if inside_us is None:
        inside_us = median(item.inside_us for item in pairs)
    # Inputs of gigabytes take tens of milliseconds to write, give or take a few: of one call a
    # batch the empty ones say as little for sure as the others.
    each = median(item.calls for item in pairs)
    off = [item / each for item in empty.off_us]
    outside_us, low_us = median(outside), _surely_at_least(outside, off)
    slack = SLACK_US[device]
    return ClockCheck(
        state=_state(outside_us, low_us, inside_us, len(pairs), slack, short_us),
        outside_us=outside_us,
        outside_low_us=low_us,
        inside_us=inside_us,
        volleys=len(pairs),
        calls=sum(item.calls for item in pairs),
        checked_outputs=checked,
        fresh_inputs=fresh,
    )


def as_failure(check: ClockCheck | None) -> ProfileFailed | None:
    """What a profile with a disputed clock ends in; None for the others."""
    if check is None or check.state != "disputed":
        return None
    text = (
        f"the parent's clock has {check.outside_us:.1f} us a call (99% sure of at least "
        f"{check.outside_low_us:.1f}) over {check.calls} calls in {check.volleys} batches; the "
        f"process's own events say {check.inside_us:.1f} us"
    )
    found = TimingDisputed(outside_us=check.outside_us, inside_us=check.inside_us, text=text)
    return ProfileFailed(side="candidate", reason="timing_disputed", log=text, timing=found)


def _state(
    outside_us: float,
    low_us: float,
    inside_us: float,
    count: int,
    slack_us: float,
    short_us: float,
) -> ClockState:
    if count < FEWEST:
        return "unknown"
    short = outside_us < short_us
    slack_us = max(slack_us, SHORT_SLACK_US) if short else slack_us
    if low_us > inside_us * (1 + TOLERANCE) + slack_us:
        return "disputed"
    if short:
        return "too_short"
    if outside_us < inside_us * (1 - TOLERANCE) - slack_us:
        return "outside_shorter"
    return "agrees"


def _surely_at_least(values: Sequence[float], off: Sequence[float]) -> float:
    """Lower end of the 99% interval of the median, by a percentile bootstrap of the values and of
    the errors (`off`) in what was taken off them."""
    generator = np.random.default_rng(0)
    medians = _medians(values, generator)
    if off:
        medians = medians - _medians(off, generator)
    return float(np.quantile(medians, 0.005))


def _medians(values: Sequence[float], generator: np.random.Generator) -> NDArray[np.float64]:
    data = np.asarray(values, float)
    picks = generator.integers(0, len(data), size=(1000, len(data)))
    return np.asarray(np.median(data[picks], axis=1))


SAMPLES = 512
"""Elements of each output that are looked at; leaving 1% undone escapes in one of 170 calls."""
ALLOWED = {"float16": 0.06, "bfloat16": 0.06}
"""Norm-wise relative distance to eager by dtype, on inputs that nobody chose. Coarse on purpose:
how exact a candidate is was the judge's question; here it is whether the work was done."""
ALLOWED_ELSE = 0.02
TELLING = 16
"""Floating elements that two different answers do not share by chance."""


class WrongOutput(NamedTuple):
    """A timed call without its right answer: the failure's name, and which one."""

    reason: str
    text: str


class OutputProbe:
    """Random places in each output, unknown to the timed process, and what lies there."""

    def __init__(self, layout: Layout, device: str, seed: int) -> None:
        import torch

        self._layout = layout
        chosen = torch.Generator().manual_seed(seed)
        self._places = [
            torch.randint(0, spec.extent, (min(SAMPLES, spec.extent),), generator=chosen).to(device)
            if spec.extent
            else torch.zeros(0, dtype=torch.int64, device=device)
            for spec in layout.outputs
        ]

    def at(self, data: torch.Tensor, rows: int) -> list[torch.Tensor]:
        """The first `rows` rows of slots at those places: [rows, places] on the CPU, per output.

        It waits for the device: a result that comes later than this is not in it.
        """
        found = spans(data, self._layout.outputs, rows)
        looked = [_select(item, places) for item, places in zip(found, self._places, strict=True)]
        return [item.cpu() for item in looked]


def _select(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Columns of `table`; one-byte floats, which few operators take, come as float32."""
    import torch

    if table.is_floating_point() and table.element_size() == 1:
        return table.view(torch.uint8).index_select(1, places).view(table.dtype).float()
    return table.index_select(1, places)


def check_all(
    found: Sequence[torch.Tensor], expected: Mapping[int, Sequence[torch.Tensor]]
) -> WrongOutput | None:
    """What can be seen in every call without knowing its answer. `found`: [calls, places] of each
    output; `expected`: eager's [places] of each output, for some of the calls."""
    import torch

    for number, rows in enumerate(found):
        known = torch.stack([item[number] for item in expected.values()])
        if rows.is_floating_point() and not known.isnan().any():
            empty = rows.isnan().all(dim=1).nonzero().flatten().tolist()
            if empty and rows.shape[1]:
                return WrongOutput(
                    "missing_output", f"output {number} of timed call {empty[0]} is absent"
                )
        alike = rows.is_floating_point() and len(known) > 1 and not _all_differ(rows)
        if alike and _all_differ(known) and not _all_differ(_telling(rows)):
            return WrongOutput(
                "stale_output", f"output {number}: two timed calls gave the same answer"
            )
    return None


def check_one(
    call: int,
    found: Sequence[torch.Tensor],
    expected: Mapping[int, Sequence[torch.Tensor]],
    reason: str = "wrong_output",
) -> WrongOutput | None:
    """The outputs of timed call number `call` ([places] each) against eager's answers by call."""
    for number, values in enumerate(found):
        own = distance(values, expected[call][number])
        others = {
            other: distance(values, answers[number])
            for other, answers in expected.items()
            if other != call and distance(answers[number], expected[call][number]) > 0
        }
        nearest = min(others, key=others.__getitem__, default=None)
        close = nearest is not None and others[nearest] <= min(own / 2, allowed(values))
        if close:
            text = f"output {number} of timed call {call} is the answer to call {nearest}"
            return WrongOutput("stale_output", text)
        if own > allowed(values):
            text = (
                f"output {number} of timed call {call} lies {own:.3g} (relative norm) from "
                f"eager's answer to the same inputs; allowed {allowed(values):g}"
            )
            return WrongOutput(reason, text)
    return None


def allowed(values: torch.Tensor) -> float:
    """The largest distance that passes, by dtype."""
    return ALLOWED.get(str(values.dtype).removeprefix("torch."), ALLOWED_ELSE)


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """||found - expected|| / ||expected|| over finite places; 1 more where NaN or infinity differ.
    For integers and booleans the share of places that differ."""
    import torch

    if not expected.numel():
        return 0.0
    if not (expected.is_floating_point() or expected.is_complex()):
        return float((found != expected).double().mean())
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = found.to(wide), expected.to(wide)
    finite = a.isfinite() & b.isfinite()
    odd = ~finite & ~((a.isnan() & b.isnan()) | (a == b))
    gap = torch.linalg.vector_norm((a - b)[finite])
    size = torch.linalg.vector_norm(b[finite])
    ratio = float(gap / size) if float(size) > 0 else float(gap > 0)
    return ratio + float(odd.any())


def _telling(rows: torch.Tensor) -> torch.Tensor:
    """The rows with at least `TELLING` values, of which the most frequent one counts once: what is
    zero nearly everywhere, as a sparse answer is, may be so at the places of any two calls."""
    kept = [
        place
        for place, row in enumerate(rows.tolist())
        if len(row) - max(Counter(row).values(), default=1) + 1 >= TELLING
    ]
    return rows[kept]


def _all_differ(rows: torch.Tensor) -> bool:
    return len({tuple(item) for item in rows.tolist()}) == len(rows)


FLUSH_SAMPLES = 64
"""Words of each flush region that must hold what this call's flush writes."""


class BatchPlan(NamedTuple):
    """A batch of at least `wanted` calls (at most `calls`); `order` has a row of inputs for each.
    `seed` decides the inputs, `kept` the calls whose outputs are looked at again, `fills` how many
    flush regions are written before each call."""

    calls: int
    wanted: int
    order: tuple[int, ...]
    kept: tuple[int, ...]
    seed: int
    fills: int = 1


class BatchResult(NamedTuple):
    """A batch's end: `found` [calls, places] of each output, `again` the same of the kept ones."""

    plan: BatchPlan
    wall_us: float
    calls: int
    samples_us: tuple[float, ...]
    strays: int
    found: list[torch.Tensor]
    again: list[torch.Tensor]
    flushed: bool


@dataclass(frozen=True)
class TimedProcess:
    """One timed process as the parent sees it: the line to it, and the shared memory. `event_us` is
    taken off the time that its events give a call."""

    line: RequestChannel
    buffers: Buffers
    layout: Layout
    device: str
    limit_s: float
    event_us: float = 0.0


def plan_batch(calls: int, layout: Layout, chosen: random.Random, fills: int = 1) -> BatchPlan:
    """A batch of `calls` calls at most; how many it becomes, the timed process is not told."""
    calls = min(calls, layout.most_calls(fills))
    wanted = chosen.randint(max(1, (2 * calls + 2) // 3), calls)
    order = tuple(chosen.sample(range(layout.rows), calls))
    kept = chosen.sample(range(wanted), min(layout.kept, max(wanted - 1, 0)))
    return BatchPlan(calls, wanted, order, tuple(sorted(kept)), chosen.getrandbits(40), fills)


def time_batch(
    timed_process: TimedProcess,
    side: str,
    plan: BatchPlan,
    fresh: FreshInputs | FreshInputsInPlace,
    look: OutputProbe,
) -> BatchResult | SideFailed:
    """One batch of `side`. A Lost where the process fails, hangs or answers in another form."""
    control = timed_process.buffers.control.numpy()
    control[:] = 0
    _poison(timed_process)
    tokens = [random.SystemRandom().getrandbits(31) for _ in range(plan.calls * plan.fills)]
    request = {"do": "volley", "side": side, "calls": plan.calls, "fills": plan.fills}
    asked = _PendingRequest(timed_process, request)
    asked.start()
    if not _reached(control, ARMED, asked, timed_process):
        return asked.failure(side)
    begin = time.perf_counter()
    fresh.write(timed_process.buffers.pool, plan.seed)
    control[HEADER : HEADER + plan.calls] = _order_words(plan)
    control[HEADER + timed_process.layout.rows :][: len(tokens)] = tokens
    control[GO] = 1
    if not _reached(control, DONE, asked, timed_process, stop_at=plan.wanted):
        return asked.failure(side)
    calls = int(min(max(int(control[PROGRESS]), 1), plan.calls))
    found = look.at(timed_process.buffers.slots, calls)
    flushes = _flush_words(timed_process, calls * plan.fills)
    wall_us = (time.perf_counter() - begin) * 1e6
    control[RELEASE] = 1
    answer = asked.answer(side, calls)
    if isinstance(answer, SideFailed):
        return answer
    flushed = bool((flushes == _column(tokens[: calls * plan.fills])).all())
    again = look.at(timed_process.buffers.kept, len(plan.kept)) if plan.kept else []
    return BatchResult(plan, wall_us, calls, answer.us, answer.strays, found, again, flushed)


class _Answer(NamedTuple):
    us: tuple[float, ...]
    strays: int


class _PendingRequest(threading.Thread):
    """The request of a batch, whose answer comes after its end."""

    def __init__(self, timed_process: TimedProcess, request: dict[str, object]) -> None:
        super().__init__(daemon=True, name="volley")
        self._timed_process = timed_process
        self._request = request
        self._found: dict[str, JSON] | SideFailed | None = None

    def run(self) -> None:
        """Ask, and keep the answer."""
        self._found = self._timed_process.line.ask(self._request, self._timed_process.limit_s)

    def failure(self, side: str) -> SideFailed:
        """Why there was no end; the request is over or runs into its limit."""
        self.join()
        if isinstance(self._found, SideFailed):
            return self._found.evolve(side=side)
        return SideFailed(side=side, reason="malformed", log="a batch without its words")

    def answer(self, side: str, calls: int) -> _Answer | SideFailed:
        """What the process says of its own times."""
        self.join()
        if isinstance(self._found, dict):
            us, strays = self._found.get("us"), self._found.get("strays")
            if isinstance(us, list) and len(us) == calls and isinstance(strays, int):
                times = tuple(item for item in us if is_time(item))
                if len(times) == calls:
                    return _Answer(subtract_event_time(times, self._timed_process.event_us), strays)
            text = f"volley: {str(self._found)[:300]}"
            return SideFailed(side=side, reason="malformed", log=text)
        return self.failure(side)


def _reached(
    control: NDArray[np.int64],
    word: int,
    asked: _PendingRequest,
    timed_process: TimedProcess,
    stop_at: int | None = None,
) -> bool:
    """Watch the process's words; past `stop_at` calls tell it to stop. False: it will not come."""
    nap = 0.0 if timed_process.device == "cuda" else 5e-5
    end = time.monotonic() + timed_process.limit_s + 1.0
    while not control[word]:
        if stop_at is not None and control[PROGRESS] >= stop_at:
            control[STOP] = 1
        if not asked.is_alive() or time.monotonic() > end:
            return bool(control[word])
        time.sleep(nap)
    return True


def _order_words(plan: BatchPlan) -> list[int]:
    return [row | (KEEP if index in plan.kept else 0) for index, row in enumerate(plan.order)]


def _poison(timed_process: TimedProcess) -> None:
    """No earlier answer lies where the next ones go."""
    import torch

    for data in (timed_process.buffers.slots, timed_process.buffers.kept):
        data.view(torch.int64).fill_(-1)
    if timed_process.device == "cuda":
        torch.cuda.synchronize()


def _flush_words(timed_process: TimedProcess, regions: int) -> torch.Tensor:
    """[regions, words] of what the flushes wrote, at random places, on the CPU."""
    import torch

    filled = flush_regions(timed_process.buffers.flush, timed_process.layout)[:regions]
    seed = random.SystemRandom().getrandbits(40)
    chosen = torch.Generator().manual_seed(seed)
    places = torch.randint(0, filled.shape[1], (FLUSH_SAMPLES,), generator=chosen)
    return filled.index_select(1, places.to(filled.device)).cpu()


def _column(tokens: Sequence[int]) -> torch.Tensor:
    import torch

    return torch.tensor(tokens, dtype=torch.int32).view(-1, 1)
