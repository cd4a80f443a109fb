"""Timing batches of all sides of one shape set, and the sandboxed process of the candidate."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Self

from agentkernel.domain.profile import ClockCheck
from agentkernel.tools.profiler.rounds import SideFailed
from agentkernel.tools.profiler.timing.arena import (
    LONG_FLUSH,
    Buffers,
    Layout,
    flush_step,
    make_buffers,
    packed,
    row_bytes,
    spec_of,
)
from agentkernel.tools.profiler.timing.batch import (
    BatchPlan,
    BatchResult,
    ClockPair,
    OutputProbe,
    TimedProcess,
    WrongOutput,
    check_all,
    check_one,
    compare_clocks,
    fit_empty_batches,
    plan_batch,
    time_batch,
)
from agentkernel.tools.profiler.timing.inputs import (
    FreshInputs,
    FreshInputsInPlace,
    ProblemTensors,
    sums_of,
)
from agentkernel.tools.profiler.timing.process import CANDIDATE
from agentkernel.tools.profiler.timing.stopwatch import LEAD_CALLS, LONG_CALL_US
from agentkernel.tools.sandbox.protocol import JSON, WorkerFailed
from agentkernel.tools.sandbox.session import Worker
from agentkernel.tools.sandbox.tensors import Shared, TensorRef, share_tensor

if TYPE_CHECKING:
    from types import TracebackType

    import torch

    from agentkernel.tools.profiler.baselines import BaselineProcess


MOST_BYTES = {"cuda": 12 << 30, "cpu": 64 << 20}
CHECK_US = 15_000.0
"""Device time that eager's answers may take after each of the candidate's batches."""
MOST_CHECKED = 8
APPEAL = 9
"""Volleys behind long flushes before a dispute is final."""


@dataclass
class BatchDriver:
    """The ground of one shape set: the shared memory, the inputs' source, and the baseline process
    on it.

    `baseline_handles`: the parent's handles of what the baseline process maps, alive as long as
    this.
    """

    layout: Layout
    values: tuple[object, ...]
    buffers: Buffers
    fresh: FreshInputs | FreshInputsInPlace
    baseline_process: TimedProcess
    baseline_handles: list[Shared]
    device: str
    limit_s: float
    seed: int
    exempt: frozenset[int] = frozenset()
    """Inputs that the reference itself writes to."""
    eager_us: float | None = None
    others: dict[str, TimedProcess] = field(default_factory=dict)
    """Where a side is timed that has a process of its own, by name."""
    chosen: random.Random = field(default_factory=random.SystemRandom)

    def side(self, name: str) -> BatchSide:
        """Eager or a compiled module."""
        return BatchSide(name, self, self.others.get(name, self.baseline_process))

    def join(self, name: str, line: BaselineProcess, event_us: float) -> SideFailed | None:
        """Let the process of the side `name` map the memory too, and try it on two rows."""
        shared = dict(zip(Buffers._fields, self.baseline_handles, strict=True))
        self.write(self.baseline_process)
        tried = line.ask(memory_request(self, shared), self.limit_s)
        if not isinstance(tried, SideFailed):
            request = {"do": "answers", "side": name, "rows": first_rows(self.layout)}
            tried = line.ask(request, self.limit_s)
        if isinstance(tried, SideFailed):
            return tried.evolve(side=name)
        self.others[name] = replace(self.baseline_process, line=line, event_us=event_us)
        return None

    def candidate(self, name: str, timed_process: TimedProcess) -> CandidateSide:
        """The candidate, whose outputs are checked."""
        return CandidateSide(name, self, timed_process)

    def write(self, timed_process: TimedProcess) -> None:
        """Numbers to warm up on, in memory that a process has newly mapped."""
        self.fresh.begin(timed_process.buffers.pool, self.seed)

    def answers(
        self, plan: BatchPlan, calls: Sequence[int], look: OutputProbe
    ) -> list[torch.Tensor] | SideFailed:
        """Eager's outputs for those calls' inputs: [len(calls), places] of each output."""
        self.fresh.write(self.baseline_process.buffers.pool, plan.seed)
        rows = [plan.order[index] for index in calls]
        request = {"do": "answers", "side": "eager", "rows": rows}
        found = self.baseline_process.line.ask(request, self.limit_s)
        if isinstance(found, SideFailed):
            return found.evolve(side="eager")
        return look.at(self.baseline_process.buffers.slots, len(calls))

    def close(self) -> None:
        """Close the files that the baseline process opened its views by."""
        for item in self.baseline_handles:
            if item.fd is not None:
                os.close(item.fd)
                item.fd = None


class BatchSide:
    """A `Side` timed by batches: the samples are the process's own, the walls the parent's."""

    def __init__(self, name: str, driver: BatchDriver, timed_process: TimedProcess) -> None:
        self.name = name
        self.timed: list[ClockPair] = []
        self._driver = driver
        self._timed_process = timed_process

    def block(self, calls: int) -> tuple[float, ...] | SideFailed:
        """Microseconds of the calls of one batch, of at most `calls`."""
        plan = plan_batch(calls, self._driver.layout, self._driver.chosen)
        batch_result = self._run_batch(plan, self._look())
        if isinstance(batch_result, SideFailed):
            return batch_result
        if self.name == "eager":
            self._driver.eager_us = median(batch_result.samples_us)
        return self._counted(batch_result.samples_us)

    def _look(self) -> OutputProbe:
        driver = self._driver
        return OutputProbe(driver.layout, driver.device, driver.chosen.getrandbits(40))

    def _run_batch(self, plan: BatchPlan, look: OutputProbe) -> BatchResult | SideFailed:
        batch_result = time_batch(self._timed_process, self.name, plan, self._driver.fresh, look)
        if not isinstance(batch_result, SideFailed):
            self.timed.append(self._noted(batch_result))
        return batch_result

    def _noted(self, batch_result: BatchResult) -> ClockPair:
        return ClockPair(
            batch_result.calls, batch_result.wall_us, median(self._counted(batch_result.samples_us))
        )

    def _counted(self, samples_us: tuple[float, ...]) -> tuple[float, ...]:
        """Without the first calls, in which the host is not yet ahead of the device."""
        if self._driver.device == "cpu" or len(samples_us) < 3 * LEAD_CALLS:
            return samples_us
        return samples_us if median(samples_us) > LONG_CALL_US else samples_us[LEAD_CALLS:]


class CopyOnlySide(BatchSide):
    """Calls that only copy a ready answer. Their time by the baseline process's own events, which
    are to be trusted, is taken off: what is left is the flush, the delivery of an output that lies
    in L2 as a call leaves it, and the boundaries between them."""

    def _noted(self, batch_result: BatchResult) -> ClockPair:
        return ClockPair(batch_result.calls, batch_result.wall_us - sum(batch_result.samples_us))


class CandidateSide(BatchSide):
    """The candidate: each batch is checked, and stands beside one without calls."""

    def __init__(self, name: str, driver: BatchDriver, timed_process: TimedProcess) -> None:
        super().__init__(name, driver, timed_process)
        self.empty = CopyOnlySide("null", driver, driver.baseline_process)
        self.checked = 0

    def block(self, calls: int) -> tuple[float, ...] | SideFailed:
        """Microseconds of the calls of one batch; a Lost with the failure's name where outputs,
        inputs or flushes are not as they must be."""
        driver = self._driver
        return self._batch(plan_batch(calls, driver.layout, driver.chosen))

    def _batch(self, plan: BatchPlan) -> tuple[float, ...] | SideFailed:
        look = self._look()
        empty = self.empty._run_batch(plan, look)
        if isinstance(empty, SideFailed):
            return empty
        batch_result = self._run_batch(plan, look)
        if isinstance(batch_result, SideFailed):
            return batch_result
        wrong = self._check(batch_result, look)
        if isinstance(wrong, WrongOutput):
            return SideFailed(side=self.name, reason=wrong.reason, log=wrong.text)
        return wrong or self._counted(batch_result.samples_us)

    def clock(self) -> ClockCheck | SideFailed | None:
        """Both clocks on all batches but the first, which warms up.

        A candidate whose launches take the host longer than the flush lasts has gaps between its
        calls that its events do not see. A disputed one is therefore timed again behind longer
        flushes, which close such gaps and leave what was hidden from the events.
        """
        first = self._compared(1)
        calls = self._driver.layout.most_calls(LONG_FLUSH)
        if first is None or first.state != "disputed" or not calls:
            return first
        held = self.timed, self.empty.timed
        self.timed, self.empty.timed = [], []
        for _ in range(APPEAL):
            chosen = plan_batch(calls, self._driver.layout, self._driver.chosen, LONG_FLUSH)
            found = self._batch(chosen)
            if isinstance(found, SideFailed):
                return found
        second = self._compared(0, first.inside_us)
        self.timed, self.empty.timed = held
        return second

    def _compared(self, skip: int, inside_us: float | None = None) -> ClockCheck | None:
        return compare_clocks(
            self.timed[skip:],
            fit_empty_batches(self.empty.timed[skip:] or self.empty.timed),
            device=self._driver.device,
            inside_us=inside_us,
            checked=self.checked,
            fresh=self._driver.fresh.varies,
        )

    def clock_of(self, other: BatchSide) -> ClockCheck | None:
        """The same for a side of the baseline process's, with this side's empty batches."""
        empty = fit_empty_batches(self.empty.timed[1:] or self.empty.timed)
        return compare_clocks(other.timed[1:], empty, device=self._driver.device)

    def _check(
        self, batch_result: BatchResult, look: OutputProbe
    ) -> WrongOutput | SideFailed | None:
        if batch_result.strays:
            return WrongOutput(
                "side_work", f"{batch_result.strays} threads outlived the calls that began them"
            )
        if not batch_result.flushed:
            return WrongOutput("flush_skipped", "the flush between two calls was left out")
        driver = self._driver
        same = driver.fresh.unchanged(self._timed_process.buffers.pool, batch_result.plan.seed)
        changed = [i for i, ok in enumerate(same) if not ok and i not in driver.exempt]
        if changed:
            return WrongOutput("inputs_changed", f"tensor input {changed[0]} was written to")
        calls = self._to_check(batch_result)
        answers = driver.answers(batch_result.plan, calls, look)
        if isinstance(answers, SideFailed):
            return answers
        expected = {call: [rows[place] for rows in answers] for place, call in enumerate(calls)}
        self.checked += len(calls)
        return _first_wrong(batch_result, expected)

    def _to_check(self, batch_result: BatchResult) -> list[int]:
        """Random calls with their neighbours before, as many as eager answers in a few
        milliseconds, and those whose outputs were kept."""
        eager_us = self._driver.eager_us or CHECK_US
        most = min(batch_result.calls, MOST_CHECKED, max(2, int(CHECK_US / eager_us)))
        later = range(min(1, batch_result.calls - 1), batch_result.calls)
        picked = self._driver.chosen.sample(later, min((most + 1) // 2, len(later)))
        near = [max(index - 1, 0) for index in picked]
        kept = [index for index in batch_result.plan.kept if index < batch_result.calls]
        return sorted({*picked, *near, *kept})


def open_batch_driver(
    baseline_process: BaselineProcess,
    problem: ProblemTensors,
    outputs: object,
    *,
    calls: int,
    limit_s: float,
    event_us: float,
) -> BatchDriver | SideFailed | None:
    """Shared memory for batches of up to `calls` calls on the problem's inputs, with the baseline
    process on it.

    `outputs`: dtype and shape of each output. `event_us`: what events add to a call. Inputs too
    large to exist twice are the one row. None where the device has too little memory, or shares
    none between processes.
    """
    import torch

    tensors = [item for item in problem.inputs if isinstance(item, torch.Tensor)]
    pool = problem.pool
    layout = plan_layout(problem, outputs, 1 if pool is not None else calls)
    if layout is None:
        return None
    try:
        buffers = make_buffers(layout, problem.device, pool)
        for vary in (True, False):
            drawn = random.SystemRandom().getrandbits(40)
            fresh = (
                FreshInputs(tensors, layout, drawn, vary=vary)
                if pool is None
                else FreshInputsInPlace(layout, pool, vary=vary)
            )
            found = _with_baseline(
                baseline_process, problem, layout, buffers, fresh, limit_s, event_us
            )
            if not isinstance(found, SideFailed) or not baseline_process.alive:
                return found
            fresh.restore()
    except torch.OutOfMemoryError:
        return None
    return found


def plan_layout(problem: ProblemTensors, outputs: object, calls: int) -> Layout | None:
    """As many rows as `calls`, the free memory and `MOST_BYTES` allow; one, which all sides share,
    where not even two fit. Few rows have `LONG_FLUSH` regions all the same, as far as these fit.
    None without an output."""
    import torch

    specs = tuple(
        spec_of(item) if isinstance(item, torch.Tensor) else None for item in problem.inputs
    )
    found = tuple(
        packed(str(item[0]), [int(str(size)) for size in item[1]])
        for item in (outputs if isinstance(outputs, list) else [])
        if isinstance(item, list) and isinstance(item[1], list)
    )
    one = Layout(specs, found, 1, problem.flush_bytes)
    need = row_bytes(one.tensors) + row_bytes(found) + flush_step(one)
    room = MOST_BYTES[problem.device]
    if problem.device == "cuda":
        from agentkernel.tools.judge.memory_count import timing_room

        room = min(room, timing_room())
    if not found:
        return None
    flush, left = flush_step(one), room - one.kept * row_bytes(found)
    rows = min(calls, left // need)
    if rows < LONG_FLUSH:
        rows = min(rows, (left - LONG_FLUSH * flush) // (need - flush))
    if rows < 2:
        return replace(one, kept=0, spare=max(0, min(room // flush, LONG_FLUSH) - 1))
    return replace(one, rows=rows, spare=max(0, LONG_FLUSH - rows))


def _with_baseline(
    baseline_process: BaselineProcess,
    problem: ProblemTensors,
    layout: Layout,
    buffers: Buffers,
    fresh: FreshInputs | FreshInputsInPlace,
    limit_s: float,
    event_us: float,
) -> BatchDriver | SideFailed | None:
    """Let the baseline process map the memory, and try eager on two rows."""
    import torch

    device, seed = problem.device, problem.seed
    values = tuple(None if isinstance(item, torch.Tensor) else item for item in problem.inputs)
    shared = {name: share_tensor(item) for name, item in buffers._asdict().items()}
    ours = Buffers(**{name: item.tensor for name, item in shared.items()})
    timed_process = TimedProcess(baseline_process, ours, layout, device, limit_s, event_us)
    made = BatchDriver(
        layout, values, buffers, fresh, timed_process, list(shared.values()), device, limit_s, seed
    )
    if any(item.ref.kind == "staged" for item in shared.values()):
        made.close()
        return None
    made.write(timed_process)
    answer = baseline_process.ask(memory_request(made, shared), limit_s)
    if isinstance(answer, SideFailed):
        made.close()
        return answer
    request = {"do": "answers", "side": "eager", "rows": first_rows(layout)}
    tried = baseline_process.ask(request, limit_s)
    if isinstance(tried, SideFailed):
        made.close()
        return tried
    same = fresh.unchanged(ours.pool, seed)
    made.exempt = frozenset(index for index, ok in enumerate(same) if not ok)
    if layout.resident and made.exempt:
        made.close()
        return None  # what the reference writes to cannot be brought back
    return made


def first_rows(layout: Layout) -> list[int]:
    """The rows that a side is tried on: two where there are two."""
    return list(range(min(2, layout.rows)))


def memory_request(driver: BatchDriver, shared: dict[str, Shared]) -> dict[str, JSON | object]:
    """What the baseline process has to know to open its views."""
    return {
        "do": "ground",
        "layout": driver.layout,
        "values": driver.values,
        "buffers": {name: item.ref for name, item in shared.items()},
        "files": {name: item.fd for name, item in shared.items() if item.fd is not None},
        "parent": os.getpid(),
        "limit_s": driver.limit_s,
    }


def _first_wrong(
    batch_result: BatchResult, expected: dict[int, list[torch.Tensor]]
) -> WrongOutput | None:
    wrong = check_all(batch_result.found, expected)
    every = [
        check_one(call, [rows[call] for rows in batch_result.found], expected) for call in expected
    ]
    found = [item for item in every if item is not None]
    if wrong is None and found:
        stale = [item for item in found if item.reason == "stale_output"]
        return (stale or found)[0]
    kept = [index for index in batch_result.plan.kept if index < batch_result.calls]
    for place, call in () if wrong else enumerate(kept):
        again = check_one(call, [rows[place] for rows in batch_result.again], expected)
        if again is not None:
            text = f"after later calls the {again.text}"
            return WrongOutput("overwritten_output", text)
    return wrong


OPS = "agentkernel.tools.profiler.timing.process"


class CandidateProcess:
    """A worker that holds one candidate; a `Line` for RemoteSide. Closes the worker at its end."""

    def __init__(self, worker: Worker, timeout_s: float) -> None:
        self._worker = worker
        self._timeout_s = timeout_s
        self._inputs: list[TensorRef] = []
        self._weights: dict[str, TensorRef] = {}

    @property
    def pids(self) -> list[int]:
        """The worker and its launcher, as this process numbers them."""
        return self._worker.outer_pids()

    def load(self, source: str, problem: ProblemTensors) -> SideFailed | None:
        """Build `ModelNew` with the parent's weights; a Lost where that fails."""
        loaded = problem.loaded
        self._weights = {
            name: self._worker.share(tensor) for name, tensor in problem.parameters().items()
        }
        payload: dict[str, object] = {
            "source": source,
            "class_name": "ModelNew",
            "init_args": tuple(loaded.init_args),
            "init_kwargs": dict(loaded.init_kwargs),
            "arguments": loaded.problem.arguments,
            "seed": problem.seed,
            "flush_bytes": problem.flush_bytes,
            "state": self._weights,
        }
        return _lost(self._call("load", payload, self._timeout_s))

    def prepare(self, inputs: Sequence[object], *, large: bool = False) -> SideFailed | None:
        """Share the inputs of a shape set and warm the candidate up on them. `large`: they exist
        once, in an allocation of their own, and no turn's memory is kept for the next one."""
        import torch

        share = self._worker.share_resident if large else self._worker.share
        shared = [share(item) if isinstance(item, torch.Tensor) else item for item in inputs]
        self._inputs = [item for item in shared if isinstance(item, TensorRef)]
        payload = {"inputs": shared, "large": large}
        return _lost(self._call("prepare", payload, self._timeout_s))

    def ground(self, driver: BatchDriver) -> TimedProcess | SideFailed | None:
        """Share the memory of batches; None where this device shares none between processes."""
        share = self._worker.share_resident if driver.layout.resident else self._worker.share
        refs = {name: share(item) for name, item in driver.buffers._asdict().items()}
        if any(ref.kind == "staged" for ref in refs.values()):
            self._worker.release(list(refs.values()))
            return None
        self._inputs += refs.values()
        views = Buffers(**{name: self._worker.shared(ref) for name, ref in refs.items()})
        timed_process = TimedProcess(
            self,
            views,
            driver.layout,
            driver.device,
            driver.limit_s,
            driver.baseline_process.event_us,
        )
        driver.write(timed_process)
        payload = {
            "layout": driver.layout,
            "values": driver.values,
            "buffers": refs,
            "limit_s": driver.limit_s,
        }
        return _lost(self._call("ground", payload, self._timeout_s)) or timed_process

    def weight_sums(self) -> dict[str, bytes]:
        """A checksum of each parameter and buffer, as the worker's memory holds them."""
        return sums_of({name: self._worker.shared(ref) for name, ref in self._weights.items()})

    def forget(self) -> SideFailed | None:
        """Unmap the inputs, so that the parent may free them."""
        self._worker.release(self._inputs)
        self._inputs = []
        return _lost(self._call("forget", {}, self._timeout_s))

    def ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, JSON] | SideFailed:
        """A timing request."""
        return self._call("measure", request, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.close()

    def _call(
        self, op: str, payload: Mapping[str, object], timeout_s: float
    ) -> dict[str, JSON] | SideFailed:
        answer = self._worker.call(f"{OPS}:{op}", payload, timeout_s)
        if isinstance(answer, WorkerFailed):
            return SideFailed(side=CANDIDATE, reason=answer.reason, log=answer.log)
        return answer


def _lost(answer: dict[str, JSON] | SideFailed) -> SideFailed | None:
    return answer if isinstance(answer, SideFailed) else None
