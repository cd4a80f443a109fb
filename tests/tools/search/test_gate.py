"""A race has the device alone while it times, and never while a schedule is loaded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from agentkernel.runtime import gpu_lock, pool
from agentkernel.runtime.gpu_lock import GpuLock
from agentkernel.tools.search import measuring
from agentkernel.tools.search.descent import FIRST, ROUND
from agentkernel.tools.search.measuring import (
    MOST_MEASURED,
    TOO_DEAR,
    ScheduleTime,
    _Field,
    _HalvingSearch,
)
from agentkernel.tools.search.space import Form, Space
from agentkernel.tools.search.static import BUDGET_SPENT
from agentkernel.tools.search.worker import Block, Entry, Sketch, WarmUpResult


class Noted(GpuLock):
    """A gate that knows how this process stands to it, and makes everybody wait a moment."""

    held: str | None = None

    def _enter(self, kind: str) -> None:
        time.sleep(0.2)
        super()._enter(kind)  # type: ignore[arg-type]
        self.held = kind

    def _leave(self) -> None:
        super()._leave()
        self.held = None


@dataclass
class Bench:
    """Schedules of which one takes the process down the first time that it is timed again."""

    place: Noted
    deadly: int | None = None
    loaded: set[int] = field(default_factory=set)
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    blocks: int = 0
    last_failure: str = "died"

    def open(self) -> None:
        self.seen.append(("open", self.place.held))

    def alive(self, index: int) -> bool:
        return index in self.loaded

    def pids(self) -> list[int]:
        return []

    def warm(self, entries: Sequence[Entry]) -> WarmUpResult:
        self.seen.append(("warm", self.place.held))
        self.loaded |= {item.number for item in entries}
        return WarmUpResult({item.number: Sketch(0, (1.0,)) for item in entries})

    def time_block(
        self, index: int, calls: int, *, last_us: float, limit_us: float, whole: bool = True
    ) -> Block | None:
        self.seen.append(("time", self.place.held))
        self.blocks += 1
        if index == self.deadly:
            self.loaded.clear()
            return None
        return Block((float(10 + index),) * calls)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noted:
    found = Noted(tmp_path)
    monkeypatch.setattr(gpu_lock, "_current_lock", lambda: found)
    return found


def fields_of(*counts: int) -> list[_Field]:
    found = []
    for count in counts:
        names = tuple(str(index) for index in range(count))
        space = Space(None, names, names, ({},) * count)  # type: ignore[arg-type]
        found.append(_Field(space, (None,) * count, (1.0,) * count))
    return found


def race(bench: Bench, seconds: float, fields: Sequence[_Field] = ()) -> dict[int, ScheduleTime]:
    fields = fields or fields_of(5)
    search(bench, seconds, fields).run()
    return fields[0].times


def search(bench: Bench, seconds: float, fields: Sequence[_Field]) -> _HalvingSearch:
    return _HalvingSearch(bench, fields, time.monotonic() + seconds)  # type: ignore[arg-type]


def test_loading_shares_the_device_and_timing_does_not(place: Noted) -> None:
    bench = Bench(place)
    assert min(race(bench, 60.0)) == 0
    assert set(bench.seen) == {("open", None), ("warm", "working"), ("time", "timing")}
    assert place.held is None


def test_the_parts_of_a_model_are_timed_in_one_turn_each_by_itself(place: Noted) -> None:
    bench, fields = Bench(place), fields_of(2, 7)
    race(bench, 60.0, fields)
    assert [sorted(field.times) for field in fields] == [[0, 1], [0, 1, 2, 3, 4, 5, 6]]
    kinds = [kind for kind, _ in bench.seen if kind != "open"]
    assert kinds.index("time") == sum(kind == "warm" for kind in kinds)
    best = [min(field.times, key=lambda index: field.times[index].time_us) for field in fields]
    assert best == [0, 0]


def test_what_a_death_unloaded_is_loaded_while_others_may_time(place: Noted) -> None:
    bench = Bench(place, deadly=1)
    assert sorted(race(bench, 60.0)) == [0, 2, 3, 4]
    assert set(bench.seen) == {("open", None), ("warm", "working"), ("time", "timing")}
    assert sum(kind == "warm" for kind, _ in bench.seen) > 1


def test_waiting_at_the_gate_is_not_the_races_time(place: Noted) -> None:
    own = search(Bench(place), 60.0, fields_of(5))
    end = own._end_s
    own.run()
    assert own._end_s - end >= 2 * 0.2, "one to load, one to time"


def test_the_worker_comes_first_where_others_use_the_gate(
    place: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[tuple[str, int]] = []

    class Seen(Bench):
        def pids(self) -> list[int]:
            return [4711]

        def time_block(self, *args: int, **named: object) -> Block | None:
            assert len(first) == 2, "before the first call is timed"
            return super().time_block(*args, **named)  # type: ignore[arg-type]

    @contextmanager
    def noted(name: str, pids: Sequence[int]) -> Iterator[None]:
        first.append((name, pids[-1]))
        yield

    monkeypatch.setattr(pool, "raised_priority", partial(noted, "priority"))
    monkeypatch.setattr(pool, "on_timed_cpus", partial(noted, "cpus"))
    monkeypatch.setattr(gpu_lock, "has_other_users", lambda: True)
    race(Seen(place), 60.0)
    assert first == [("priority", 4711), ("cpus", 4711)]


def test_all_stages_are_one_turn(place: Noted) -> None:
    turns: list[str] = []

    @contextmanager
    def counted(kind: str) -> Iterator[None]:
        turns.append(kind)
        yield

    place.hold = counted  # type: ignore[method-assign, assignment]
    race(Bench(place), 60.0)
    assert turns == ["working", "timing"]


@pytest.mark.parametrize(
    ("estimates", "kept"),
    [((None, 2.0, None, 1.0), (3, 1)), ((None,) * 4, (0,))],
    ids=["compiled", "the favourite of none"],
)
def test_what_was_not_compiled_in_time_is_not_compiled_at_the_race(
    estimates: tuple[float | None, ...], kept: tuple[int, ...]
) -> None:
    names = tuple("abcd")
    space = Space(None, names, names, ({},) * 4)  # type: ignore[arg-type]
    found = _Field(space, (None,) * 4, estimates)
    assert tuple(found.kept) == kept
    assert found.following(dict.fromkeys(kept, 1.0)) == ()
    out = [place for place, item in enumerate(found.results()) if item.pruned == BUDGET_SPENT]
    assert set(out) >= set(range(4)) - set(kept)


def test_a_descent_loads_as_the_race_did_and_measures_as_many_in_all(place: Noted) -> None:
    names = tuple(str(index) for index in range(40))
    schedules = tuple({"kernel": {"BLOCK": 1 << index // 4, "num_warps": 1 << index % 4}}
                      for index in range(40))  # fmt: skip
    found = _Field(
        Space(None, names, names, schedules, hints=(39,)),  # type: ignore[arg-type]
        (None,) * 40,
        tuple(float(1 + index) for index in range(40)),
    )
    bench = Bench(place)
    times = race(bench, 60.0, [found])
    assert set(bench.seen) == {("open", None), ("warm", "working"), ("time", "timing")}
    assert len(times) == len(bench.loaded) == MOST_MEASURED
    results = found.results()
    assert [item.time_us is not None for item in results].count(True) == MOST_MEASURED
    assert {item.pruned for item in results if item.time_us is None} == {TOO_DEAR}
    beside = {35, 38, 37, 36}
    assert beside <= set(times), "what was fast before is the best, and has those beside it"


def test_a_descent_ends_with_its_share_of_the_time(
    place: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "DESCENT_SHARE", 0.001)
    (found,) = fields_of(40)
    race(Bench(place), 60.0, [found])
    assert len(found.times) == FIRST + ROUND, "a round that has begun is measured"
    assert {item.stage for item in found.times.values()} == {0, 1, 2}


def test_what_disagrees_in_a_descent_is_out(place: Noted) -> None:
    class Wrong(Bench):
        def warm(self, entries: Sequence[Entry]) -> WarmUpResult:
            found = super().warm(entries)
            odd = {number: Sketch(0, (9.0,)) for number in found.sketches if number == 18}
            return WarmUpResult(found.sketches | odd)

    (found,) = fields_of(40)
    times = race(Wrong(place), 60.0, [found])
    assert len(times) == MOST_MEASURED - 1
    assert "away from that of most" in (found.reasons[18] or "")


def test_a_form_is_no_part_of_the_descent(place: Noted) -> None:
    """It has no schedule of its own from which a step would lead, and takes no place of another."""
    names = tuple(str(index) for index in range(40))
    schedules = tuple({"kernel": {"BLOCK": 1 << index % 10, "W": index}} for index in range(40))
    space = Space(None, names, names, schedules)  # type: ignore[arg-type]
    asked: list[int] = []

    def forms(best: int, time_us: float) -> list[Form]:
        asked.append(best)
        return [Form("graph", "g"), Form("direct", "d")]

    class Forms(Bench):
        def time_block(self, index: int, calls: int, **named: object) -> Block | None:  # type: ignore[override]
            return Block((1.0 if index >= MOST_MEASURED else 10.0 + index,) * calls)

    (found,) = [_Field(space, (None,) * 40, tuple(map(float, range(1, 41))), (), forms)]
    times = race(Forms(place), 60.0, [found])
    assert asked == [0]
    assert len(times) == MOST_MEASURED + 2
    assert len(found.results()) == 42


def test_forms_are_those_of_the_fastest_and_of_the_fastest_on_the_device(place: Noted) -> None:
    """Where all wait for the processor, their times say nothing of what a form will take."""
    names = tuple(map(str, range(4)))
    asked: list[tuple[int, float]] = []

    def forms(best: int, time_us: float) -> list[Form]:
        asked.append((best, time_us))
        return [Form(f"direct {best}", f"d{best}")]

    class Late(Bench):
        def time_block(self, index: int, calls: int, **named: object) -> Block | None:  # type: ignore[override]
            device_us = (40.0, 30.0, 10.0, 20.0, 11.0, 41.0)[index]
            launch_us = (100.0, 101.0, 120.0, 110.0, 12.0, 13.0)[index]
            return Block((device_us,) * calls, launch_us)

    space = Space(None, names, names, ({},) * 4)  # type: ignore[arg-type]
    (found,) = [_Field(space, (None,) * 4, (1.0,) * 4, (), forms)]
    times = race(Late(place), 60.0, [found])
    assert asked == [(2, 10.0), (0, 40.0)]
    assert [item.label for item in found.results()[4:]] == ["direct 2", "direct 0"]
    assert (times[4].time_us, times[5].time_us) == (12.0, 41.0)
    assert min(times, key=lambda at: times[at]) == 4
