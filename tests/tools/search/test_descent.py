"""A descent stays in its space, measures nothing twice, and goes on from the best."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from agentkernel.tools.search.descent import FIRST, ROUND, Descent
from agentkernel.tools.search.space import Schedule

MOST = 24


def schedule(**constants: int) -> Schedule:
    return {"kernel": constants}


GRID = [
    schedule(BLOCK=1 << block, num_warps=1 << warps, split=split)
    for block, warps, split in itertools.product(range(5, 12), range(5), (0, 1))
]


def distance(left: Schedule, right: Schedule) -> int:
    one, other = left["kernel"], right["kernel"]
    return sum(one.get(key) != other.get(key) for key in one | other)


def descended(descent: Descent, times_us: list[float]) -> dict[int, float]:
    """The times of all that it wants to know."""
    known = {index: times_us[index] for index in descent.first()}
    while more := descent.following(known):
        assert not known.keys() & set(more)
        known |= {index: times_us[index] for index in more}
    return known


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_it_never_leaves_the_space_and_never_measures_twice(data: st.DataObject) -> None:
    size = len(GRID)
    order = data.draw(st.lists(st.integers(0, size - 1), unique=True))
    times = data.draw(st.lists(st.floats(1, 100), min_size=size, max_size=size))
    descent = Descent(GRID, order, MOST)
    known = descended(descent, times)
    assert set(known) <= set(order)
    assert len(known) == len(descent.chosen) == min(MOST, len(order))
    assert sorted(descent.chosen) == sorted(known)


def test_it_goes_along_one_axis_from_the_best() -> None:
    order = sorted(range(len(GRID)), key=lambda index: (index * 37) % len(GRID))
    descent = Descent(GRID, order, MOST)
    times = {index: 10.0 + place for place, index in enumerate(descent.first())}
    best = min(times, key=lambda index: times[index])
    more = descent.following(times)
    assert len(more) == ROUND
    assert {distance(GRID[best], GRID[index]) for index in more} == {1}


def test_it_finds_a_valley_that_the_order_puts_last() -> None:
    def time_us(item: Schedule) -> float:
        own = item["kernel"]
        block, warps = own["BLOCK"].bit_length() - 1, own["num_warps"].bit_length() - 1
        return 10.0 + abs(block - 11) + 2 * abs(warps - 4) + own["split"]

    times = [time_us(item) for item in GRID]
    worst_last = sorted(range(len(GRID)), key=lambda index: (GRID[index]["kernel"]["BLOCK"], index))
    by_order = min(times[index] for index in worst_last[:MOST])
    assert min(descended(Descent(GRID, worst_last, MOST), times).values()) < by_order


def test_schedules_without_axes_go_on_in_their_order() -> None:
    descent = Descent([{}] * 40, range(40), MOST)
    assert list(descended(descent, [5.0] * 40)) == list(range(MOST))
    other = Descent([schedule(a=1)] * FIRST + [schedule(b=2)] * 4, range(FIRST + 4), MOST)
    assert len(descended(other, [1.0] * (FIRST + 4))) == FIRST + 4


def test_without_a_time_it_goes_on_in_its_order() -> None:
    descent = Descent(GRID, range(len(GRID)), MOST)
    descent.first()
    assert descent.following({}) == tuple(range(FIRST, FIRST + ROUND))
