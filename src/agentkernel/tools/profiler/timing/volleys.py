"""How are the sides of one shape set timed by volleys, and the candidate's outputs checked?"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from agentkernel.domain.profile import ClockCheck
from agentkernel.tools.profiler.rounds import Lost
from agentkernel.tools.profiler.timing.agreement import Timed, compare_clocks, fit_empty
from agentkernel.tools.profiler.timing.answers import Look, Wrong, check_all, check_one
from agentkernel.tools.profiler.timing.arena import (
    Buffers,
    Layout,
    flush_step,
    make_buffers,
    packed,
    row_bytes,
    spec_of,
)
from agentkernel.tools.profiler.timing.bench import LEAD_CALLS, LONG_CALL_US
from agentkernel.tools.profiler.timing.clock import Plan, Shot, Stand, conduct, plan_volley
from agentkernel.tools.profiler.timing.fresh import Fresh, FreshInPlace
from agentkernel.tools.sandbox.tensors import Shared, share_tensor

if TYPE_CHECKING:
    import torch

    from agentkernel.tools.profiler.twin_process import TwinProcess
    from agentkernel.tools.sandbox.protocol import JSON

MEMORY_SHARE = 0.25
"""Of the device memory that is free when the ground is laid."""
MOST_BYTES = {"cuda": 12 << 30, "cpu": 64 << 20}
CHECK_US = 15_000.0
"""Device time that eager's answers may take after each of the candidate's volleys."""
MOST_CHECKED = 8
LONG_FLUSH = 4
"""Flush regions a call in volleys that leave no host-bound gap: about 0.3 ms on an H200."""
APPEAL = 9
"""Volleys behind long flushes before a dispute is final."""


@dataclass
class Volleys:
    """The ground of one shape set: the shared memory, the inputs' source, and the twin on it.

    `twin_sees`: the parent's handles of what the twin maps, alive as long as this.
    """

    layout: Layout
    values: tuple[object, ...]
    buffers: Buffers
    fresh: Fresh | FreshInPlace
    twin: Stand
    twin_sees: list[Shared]
    device: str
    limit_s: float
    seed: int
    exempt: frozenset[int] = frozenset()
    """Inputs that the reference itself writes to."""
    eager_us: float | None = None
    others: dict[str, Stand] = field(default_factory=dict)
    """Where a side is timed that has a process of its own, by name."""
    chosen: random.Random = field(default_factory=random.SystemRandom)

    def side(self, name: str) -> VolleySide:
        """Eager or a compiled module."""
        return VolleySide(name, self, self.others.get(name, self.twin))

    def join(self, name: str, line: TwinProcess, event_us: float) -> Lost | None:
        """Let the process of the side `name` map the memory too, and try it on two rows."""
        shared = dict(zip(Buffers._fields, self.twin_sees, strict=True))
        self.write(self.twin)
        tried = line.ask(ground_request(self, shared), self.limit_s)
        if not isinstance(tried, Lost):
            request = {"do": "answers", "side": name, "rows": first_rows(self.layout)}
            tried = line.ask(request, self.limit_s)
        if isinstance(tried, Lost):
            return tried.model_copy(update={"side": name})
        self.others[name] = replace(self.twin, line=line, event_us=event_us)
        return None

    def candidate(self, name: str, stand: Stand) -> CandidateSide:
        """The candidate, whose outputs are checked."""
        return CandidateSide(name, self, stand)

    def write(self, stand: Stand) -> None:
        """Numbers to warm up on, in memory that a process has newly mapped."""
        self.fresh.begin(stand.buffers.pool, self.seed)

    def answers(self, plan: Plan, calls: Sequence[int], look: Look) -> list[torch.Tensor] | Lost:
        """Eager's outputs for those calls' inputs: [len(calls), places] of each output."""
        self.fresh.write(self.twin.buffers.pool, plan.seed)
        rows = [plan.order[index] for index in calls]
        request = {"do": "answers", "side": "eager", "rows": rows}
        found = self.twin.line.ask(request, self.limit_s)
        if isinstance(found, Lost):
            return found.model_copy(update={"side": "eager"})
        return look.at(self.twin.buffers.slots, len(calls))

    def close(self) -> None:
        """Close the files that the twin opened its views by."""
        for item in self.twin_sees:
            if item.fd is not None:
                os.close(item.fd)
                item.fd = None


class VolleySide:
    """A `Side` timed by volleys: the samples are the process's own, the walls the parent's."""

    def __init__(self, name: str, volleys: Volleys, stand: Stand) -> None:
        self.name = name
        self.timed: list[Timed] = []
        self._volleys = volleys
        self._stand = stand

    def block(self, calls: int) -> tuple[float, ...] | Lost:
        """Microseconds of the calls of one volley, of at most `calls`."""
        plan = plan_volley(calls, self._volleys.layout, self._volleys.chosen)
        shot = self._shoot(plan, self._look())
        if isinstance(shot, Lost):
            return shot
        if self.name == "eager":
            self._volleys.eager_us = median(shot.samples_us)
        return self._counted(shot.samples_us)

    def _look(self) -> Look:
        volleys = self._volleys
        return Look(volleys.layout, volleys.device, volleys.chosen.getrandbits(40))

    def _shoot(self, plan: Plan, look: Look) -> Shot | Lost:
        shot = conduct(self._stand, self.name, plan, self._volleys.fresh, look)
        if not isinstance(shot, Lost):
            self.timed.append(self._noted(shot))
        return shot

    def _noted(self, shot: Shot) -> Timed:
        return Timed(shot.calls, shot.wall_us, median(self._counted(shot.samples_us)))

    def _counted(self, samples_us: tuple[float, ...]) -> tuple[float, ...]:
        """Without the first calls, in which the host is not yet ahead of the device."""
        if self._volleys.device == "cpu" or len(samples_us) < 3 * LEAD_CALLS:
            return samples_us
        return samples_us if median(samples_us) > LONG_CALL_US else samples_us[LEAD_CALLS:]


class NullSide(VolleySide):
    """Calls that only copy a ready answer. Their time by the twin's own events, which are to be
    trusted, is taken off: what is left is the flush, the delivery of an output that lies in L2 as a
    call leaves it, and the boundaries between them."""

    def _noted(self, shot: Shot) -> Timed:
        return Timed(shot.calls, shot.wall_us - sum(shot.samples_us))


class CandidateSide(VolleySide):
    """The candidate: each volley is checked, and stands beside one without calls."""

    def __init__(self, name: str, volleys: Volleys, stand: Stand) -> None:
        super().__init__(name, volleys, stand)
        self.empty = NullSide("null", volleys, volleys.twin)
        self.checked = 0

    def block(self, calls: int) -> tuple[float, ...] | Lost:
        """Microseconds of the calls of one volley; a Lost with the failure's name where outputs,
        inputs or flushes are not as they must be."""
        volleys = self._volleys
        return self._volley(plan_volley(calls, volleys.layout, volleys.chosen))

    def _volley(self, plan: Plan) -> tuple[float, ...] | Lost:
        look = self._look()
        empty = self.empty._shoot(plan, look)
        if isinstance(empty, Lost):
            return empty
        shot = self._shoot(plan, look)
        if isinstance(shot, Lost):
            return shot
        wrong = self._check(shot, look)
        if isinstance(wrong, Wrong):
            return Lost(side=self.name, reason=wrong.reason, log=wrong.text)
        return wrong or self._counted(shot.samples_us)

    def clock(self) -> ClockCheck | Lost | None:
        """Both clocks on all volleys but the first, which warms up.

        A candidate whose launches take the host longer than the flush lasts has gaps between its
        calls that its events do not see. A disputed one is therefore timed again behind longer
        flushes, which close such gaps and leave what was hidden from the events.
        """
        first = self._compared(1)
        calls = self._volleys.layout.rows // LONG_FLUSH
        if first is None or first.state != "disputed" or calls < 2:
            return first
        held = self.timed, self.empty.timed
        self.timed, self.empty.timed = [], []
        for _ in range(APPEAL):
            chosen = plan_volley(calls, self._volleys.layout, self._volleys.chosen, LONG_FLUSH)
            found = self._volley(chosen)
            if isinstance(found, Lost):
                return found
        second = self._compared(0, first.inside_us)
        self.timed, self.empty.timed = held
        return second

    def _compared(self, skip: int, inside_us: float | None = None) -> ClockCheck | None:
        return compare_clocks(
            self.timed[skip:],
            fit_empty(self.empty.timed[skip:] or self.empty.timed),
            device=self._volleys.device,
            inside_us=inside_us,
            checked=self.checked,
            fresh=self._volleys.fresh.varies,
        )

    def clock_of(self, other: VolleySide) -> ClockCheck | None:
        """The same for a side of the twin's, with this side's empty volleys."""
        empty = fit_empty(self.empty.timed[1:] or self.empty.timed)
        return compare_clocks(other.timed[1:], empty, device=self._volleys.device)

    def _check(self, shot: Shot, look: Look) -> Wrong | Lost | None:
        if shot.strays:
            return Wrong("side_work", f"{shot.strays} threads outlived the calls that began them")
        if not shot.flushed:
            return Wrong("flush_skipped", "the flush between two calls was left out")
        volleys = self._volleys
        same = volleys.fresh.unchanged(self._stand.buffers.pool, shot.plan.seed)
        changed = [i for i, ok in enumerate(same) if not ok and i not in volleys.exempt]
        if changed:
            return Wrong("inputs_changed", f"tensor input {changed[0]} was written to")
        calls = self._to_check(shot)
        answers = volleys.answers(shot.plan, calls, look)
        if isinstance(answers, Lost):
            return answers
        expected = {call: [rows[place] for rows in answers] for place, call in enumerate(calls)}
        self.checked += len(calls)
        return _first_wrong(shot, expected)

    def _to_check(self, shot: Shot) -> list[int]:
        """Random calls with their neighbours before, as many as eager answers in a few
        milliseconds, and those whose outputs were kept."""
        eager_us = self._volleys.eager_us or CHECK_US
        most = min(shot.calls, MOST_CHECKED, max(2, int(CHECK_US / eager_us)))
        later = range(min(1, shot.calls - 1), shot.calls)
        picked = self._volleys.chosen.sample(later, min((most + 1) // 2, len(later)))
        near = [max(index - 1, 0) for index in picked]
        kept = [index for index in shot.plan.kept if index < shot.calls]
        return sorted({*picked, *near, *kept})


def lay_ground(
    twin: TwinProcess,
    values: Sequence[object],
    outputs: object,
    *,
    device: str,
    flush_bytes: int,
    calls: int,
    limit_s: float,
    seed: int,
    event_us: float = 0.0,
    pool: torch.Tensor | None = None,
) -> Volleys | Lost | None:
    """Shared memory for volleys of up to `calls` calls on `values`, with the twin on it.

    `outputs`: dtype and shape of each output. `event_us`: what events add to a call. `pool`: the
    one row that `values` lie in, where they are too large to exist twice. None where the device
    has too little memory, or shares none between processes.
    """
    import torch

    tensors = [item for item in values if isinstance(item, torch.Tensor)]
    most = 1 if pool is not None else calls
    layout = plan_layout(values, outputs, device=device, flush_bytes=flush_bytes, calls=most)
    if layout is None:
        return None
    plain = tuple(None if isinstance(item, torch.Tensor) else item for item in values)
    try:
        buffers = make_buffers(layout, device, pool)
        for vary in (True, False):
            drawn = random.SystemRandom().getrandbits(40)
            fresh = (
                Fresh(tensors, layout, drawn, vary=vary)
                if pool is None
                else FreshInPlace(layout, pool, vary=vary)
            )
            found = _with_twin(twin, layout, plain, buffers, fresh, device, limit_s, seed, event_us)
            if not isinstance(found, Lost) or not twin.alive:
                return found
            fresh.restore()
    except torch.OutOfMemoryError:
        return None
    return found


def plan_layout(
    values: Sequence[object], outputs: object, *, device: str, flush_bytes: int, calls: int
) -> Layout | None:
    """As many rows as `calls`, the free memory and `MOST_BYTES` allow; one, which all sides share,
    where not even two fit. None without an output."""
    import torch

    specs = tuple(spec_of(item) if isinstance(item, torch.Tensor) else None for item in values)
    found = tuple(
        packed(str(item[0]), [int(str(size)) for size in item[1]])
        for item in (outputs if isinstance(outputs, list) else [])
        if isinstance(item, list) and isinstance(item[1], list)
    )
    one = Layout(specs, found, 1, flush_bytes)
    need = row_bytes(one.tensors) + row_bytes(found) + flush_step(one)
    room = MOST_BYTES[device]
    if device == "cuda":
        from agentkernel.tools.judge.admission import device_free

        room = min(room, int(device_free() * MEMORY_SHARE))
    rows = min(calls, (room - one.kept * row_bytes(found)) // need)
    if not found:
        return None
    if rows < 2:
        return Layout(specs, found, 1, flush_bytes, kept=0)
    return Layout(specs, found, rows, flush_bytes)


def _with_twin(
    twin: TwinProcess,
    layout: Layout,
    values: tuple[object, ...],
    buffers: Buffers,
    fresh: Fresh | FreshInPlace,
    device: str,
    limit_s: float,
    seed: int,
    event_us: float,
) -> Volleys | Lost | None:
    """Let the twin map the memory, and try eager on two rows."""
    shared = {name: share_tensor(item) for name, item in buffers._asdict().items()}
    ours = Buffers(**{name: item.tensor for name, item in shared.items()})
    stand = Stand(twin, ours, layout, device, limit_s, event_us)
    made = Volleys(
        layout, values, buffers, fresh, stand, list(shared.values()), device, limit_s, seed
    )
    if any(item.ref.kind == "staged" for item in shared.values()):
        made.close()
        return None
    made.write(stand)
    answer = twin.ask(ground_request(made, shared), limit_s)
    if isinstance(answer, Lost):
        made.close()
        return answer
    request = {"do": "answers", "side": "eager", "rows": first_rows(layout)}
    tried = twin.ask(request, limit_s)
    if isinstance(tried, Lost):
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


def ground_request(volleys: Volleys, shared: dict[str, Shared]) -> dict[str, JSON | object]:
    """What the twin has to know to open its views."""
    return {
        "do": "ground",
        "layout": volleys.layout,
        "values": volleys.values,
        "buffers": {name: item.ref for name, item in shared.items()},
        "files": {name: item.fd for name, item in shared.items() if item.fd is not None},
        "parent": os.getpid(),
        "limit_s": volleys.limit_s,
    }


def _first_wrong(shot: Shot, expected: dict[int, list[torch.Tensor]]) -> Wrong | None:
    wrong = check_all(shot.found, expected)
    every = [check_one(call, [rows[call] for rows in shot.found], expected) for call in expected]
    found = [item for item in every if item is not None]
    if wrong is None and found:
        stale = [item for item in found if item.reason == "stale_output"]
        return (stale or found)[0]
    kept = [index for index in shot.plan.kept if index < shot.calls]
    for place, call in () if wrong else enumerate(kept):
        again = check_one(call, [rows[place] for rows in shot.again], expected)
        if again is not None:
            text = f"after later calls the {again.text}"
            return Wrong("overwritten_output", text)
    return wrong
