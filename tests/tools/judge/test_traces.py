"""Which loads the interpreter takes for a race, and what orders two programs."""

import numpy as np
import pytest

from agentkernel.tools.judge.races import LaunchAccesses

START = 4096
FLAG = 8192


@pytest.fixture
def traces():
    made = LaunchAccesses()
    made.launch()
    made.add(START, START + 256, 4)
    made.add(FLAG, FLAG + 4, 4)
    return made


def where():
    return "kernel k line 3"


def at(*places, base=START):
    return np.array([base + 4 * place for place in places], dtype=np.uint64)


def test_what_a_program_stored_itself_it_may_load(traces):
    traces.store(at(0, 1), 4)
    traces.load(at(0, 1), where)
    traces.begin(1)
    traces.store(at(2, 3), 4)
    traces.load(at(2, 3), where)
    assert traces.races == []


def test_what_another_program_stored_it_may_not(traces):
    traces.store(at(0, 1), 4)
    traces.begin(1)
    traces.load(at(1, 2), where)
    assert len(traces.races) == 1
    assert "line 3" in traces.races[0]


def test_what_another_program_stored_to_before_is_no_scratch_of_its_own(traces):
    for program in range(2):
        traces.begin(program)
        traces.store(at(0), 4)
        traces.load(at(0), where)
    assert len(traces.races) == 1


def test_stores_alone_are_no_race(traces):
    for program in range(3):
        traces.begin(program)
        traces.store(at(0), 4)
    assert traces.races == []


def test_another_launch_may_load_it(traces):
    traces.store(at(0), 4)
    traces.launch()
    traces.add(START, START + 256, 4)
    traces.load(at(0), where)
    assert traces.races == []


@pytest.mark.parametrize(
    ("before", "after", "raced"),
    [(True, True, False), (False, True, True), (True, False, True)],
    ids=["both", "the reader alone", "the writer alone"],
)
def test_an_atomic_of_both_orders_them(traces, before, after, raced):
    traces.store(at(0), 4)
    if before:
        traces.atomic(at(0, base=FLAG))
    traces.begin(1)
    if after:
        traces.atomic(at(0, base=FLAG))
    traces.load(at(0), where)
    assert bool(traces.races) is raced


def test_an_atomic_before_the_store_orders_nothing(traces):
    traces.atomic(at(0, base=FLAG))
    traces.store(at(0), 4)
    traces.begin(1)
    traces.atomic(at(0, base=FLAG))
    traces.load(at(0), where)
    assert traces.races


def test_order_is_handed_on(traces):
    traces.store(at(0), 4)
    traces.atomic(at(0, base=FLAG))
    traces.begin(1)
    traces.atomic(at(0, base=FLAG))
    traces.begin(2)
    traces.atomic(at(0, base=FLAG))
    traces.load(at(0), where)
    assert traces.races == []


def test_a_store_says_which_storage_it_went_to(traces):
    assert (traces.store(at(0), 4), traces.store(at(0, base=FLAG), 4)) == (START, FLAG)
    assert traces.store(at(0, base=0), 4) is None


def test_lanes_that_load_what_others_of_their_program_have_stored_race(traces):
    traces.store(at(0, 1), 4)
    traces.load(at(1, 0), where)
    assert traces.races == [
        "kernel k line 3: loads what other lanes of its program store, with no tl.debug_barrier() "
        "between"
    ]


def test_lanes_are_counted_in_the_whole_tile(traces):
    traces.store(at(0, 1), 4, np.array([2, 3]))
    traces.load(at(0, 1), where, np.array([2, 3]))
    assert traces.races == []
    traces.load(at(0, 1), where)
    assert len(traces.races) == 1


@pytest.mark.parametrize("order", [LaunchAccesses.settle, lambda x: x.atomic(at(0, base=FLAG))])
def test_a_barrier_and_an_atomic_order_the_lanes_of_a_program(traces, order):
    traces.store(at(0, 1), 4)
    order(traces)
    traces.load(at(1, 0), where)
    assert traces.races == []
    traces.store(at(1, 0), 4)
    traces.load(at(0, 1), where)
    assert len(traces.races) == 1
