"""When two clocks are in dispute, and when only the host is slow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from agentkernel.domain.profile import ClockCheck
from agentkernel.tools.profiler.rounds import SideFailed
from agentkernel.tools.profiler.timing.arena import LONG_FLUSH, Layout, packed
from agentkernel.tools.profiler.timing.batch import (
    BatchPlan,
    ClockPair,
    EmptyBatchCost,
    as_failure,
    compare_clocks,
    fit_empty_batches,
)
from agentkernel.tools.profiler.timing.driver import (
    APPEAL,
    MOST_BYTES,
    CandidateSide,
    plan_layout,
)

EMPTY = EmptyBatchCost(start_us=400.0, call_us=90.0)


def volleys(outside_us: float, inside_us: float, count: int = 12) -> list[ClockPair]:
    """Volleys of 8 to 16 calls that take `outside_us` more than empty ones, with 10 us of noise."""
    chosen = random.Random(3)
    found = []
    for _ in range(count):
        calls = chosen.randint(8, 16)
        wall = EMPTY.wall_us(calls) + calls * outside_us + chosen.gauss(0, 10)
        found.append(ClockPair(calls, wall, inside_us * chosen.gauss(1, 0.003)))
    return found


@pytest.mark.parametrize(
    ("outside_us", "inside_us", "state"),
    [
        (100.0, 100.0, "agrees"),
        (106.0, 100.0, "agrees"),
        (112.0, 100.0, "disputed"),
        (100.0, 50.0, "disputed"),
        (5_000.0, 4_700.0, "disputed"),
        (5_000.0, 4_800.0, "agrees"),
        (80.0, 100.0, "outside_shorter"),
        (45.0, 38.0, "too_short"),
        (45.0, 20.0, "disputed"),
    ],
)
def test_five_percent_and_a_kernel_boundary_are_allowed(
    outside_us: float, inside_us: float, state: str
) -> None:
    check = compare_clocks(volleys(outside_us, inside_us), EMPTY)
    assert (check.state, check.outside_us) == (state, pytest.approx(outside_us, abs=1.5))


def test_two_volleys_prove_nothing() -> None:
    check = compare_clocks(volleys(100.0, 50.0, count=2), EMPTY)
    assert check.state == "unknown"
    assert compare_clocks([], EMPTY) is None


def test_a_wildly_scattered_outside_disputes_nothing() -> None:
    scattered = [
        ClockPair(10, EMPTY.wall_us(10) + 10 * us, 100.0) for us in (60, 150, 90, 300, 80, 170, 95)
    ]
    check = compare_clocks(scattered, EMPTY)
    assert check.state == "agrees"


def test_the_line_through_empty_volleys_ignores_hiccups() -> None:
    points = [ClockPair(calls, 400.0 + 90.0 * calls) for calls in range(8, 17)]
    points[2] = ClockPair(10, 9_000.0)
    points[7] = ClockPair(15, 20_000.0)
    assert fit_empty_batches(points)[:2] == (pytest.approx(400.0), pytest.approx(90.0))
    single = fit_empty_batches([ClockPair(1, 300.0), ClockPair(1, 310.0), ClockPair(1, 900.0)])
    assert single == (310.0, 0.0, (-10.0, 0.0, 590.0))


@pytest.mark.quick(1)
@pytest.mark.parametrize(("hidden_us", "least", "most"), [(0.0, 0, 6), (6_000.0, 190, 200)])
def test_empty_volleys_have_noise_of_their_own(hidden_us: float, least: int, most: int) -> None:
    """Volleys of one call on gigabytes: milliseconds of noise in the calls' and in the empty ones
    (H200, inputs of 4 GB). Without the latter's, one honest kernel in eight was disputed."""
    chosen = random.Random(11)
    disputed = 0
    for _ in range(200):
        empty = fit_empty_batches([ClockPair(1, chosen.gauss(11_000, 1_800)) for _ in range(31)])
        walls = (chosen.gauss(12_700 + hidden_us, 1_800) for _ in range(31))
        check = compare_clocks([ClockPair(1, wall, 1_700.0) for wall in walls], empty)
        disputed += check.state == "disputed"
    assert least <= disputed <= most


def test_a_dispute_is_a_failure_with_both_figures() -> None:
    check = compare_clocks(volleys(100.0, 50.0), EMPTY)
    failed = as_failure(check)
    assert (failed.side, failed.reason) == ("candidate", "timing_disputed")
    assert (failed.timing.outside_us, failed.timing.inside_us) == (
        pytest.approx(100, abs=2),
        pytest.approx(50, rel=0.01),
    )
    assert as_failure(compare_clocks(volleys(100.0, 100.0), EMPTY)) is None
    assert as_failure(None) is None


class Playing(CandidateSide):
    """A candidate's side whose batches are numbers: what outside shows behind long flushes."""

    def __init__(
        self, first: Sequence[ClockPair], behind_long_us: float, layout: Layout | None = None
    ) -> None:
        self.timed = [first[0], *first]
        self.empty = _Nothing()  # type: ignore[assignment]
        self.checked = 0
        self._behind_long_us = behind_long_us
        self._driver = _Ground()  # type: ignore[assignment]
        self._driver.layout = layout or self._driver.layout
        self.plans: list[BatchPlan] = []

    def _batch(self, plan: BatchPlan) -> tuple[float, ...] | SideFailed:
        self.plans.append(plan)
        wall = EMPTY.wall_us(plan.wanted) + plan.wanted * self._behind_long_us
        self.timed.append(ClockPair(plan.wanted, wall, self._behind_long_us))
        self.empty.timed.append(ClockPair(plan.wanted, EMPTY.wall_us(plan.wanted)))
        return (1.0,)


class _Nothing:
    def __init__(self) -> None:
        self.timed = [ClockPair(calls, EMPTY.wall_us(calls)) for calls in (8, 8, 12, 16)]


class _Ground:
    device = "cuda"
    layout = Layout((), (packed("float32", [4]),), rows=32, flush_bytes=4096)
    chosen = random.Random(1)

    class fresh:  # noqa: N801 - stands for an instance
        varies = True


@pytest.mark.parametrize(
    ("behind_long_us", "state"),
    [
        pytest.param(78.0, "agrees", id="the-host-was-slow"),
        pytest.param(115.0, "disputed", id="honest-only-behind-long-flushes"),
    ],
)
def test_a_disputed_candidate_is_heard_once_more(behind_long_us: float, state: str) -> None:
    """Between calls that the host launches late are gaps that no event sees; a lie stays one."""
    side = Playing(volleys(115.0, 80.0), behind_long_us)
    check = side.clock()
    assert isinstance(check, ClockCheck)
    assert (check.state, check.inside_us) == (state, pytest.approx(80.0, rel=0.01))
    assert len(side.plans) == APPEAL
    assert all(plan.fills == LONG_FLUSH for plan in side.plans)
    assert all(plan.calls * plan.fills <= 32 for plan in side.plans)


@pytest.mark.parametrize(
    ("rows", "calls"), [(1, 1), (3, 1), (8, 2), (32, 8)], ids=lambda value: str(value)
)
@pytest.mark.parametrize(("behind_long_us", "state"), [(78.0, "agrees"), (160.0, "disputed")])
def test_few_rows_are_heard_once_more_too(
    rows: int, calls: int, behind_long_us: float, state: str
) -> None:
    """With one call a batch all that a process does once counts as the call's time, and a dispute
    was final at once. A lie is seen behind long flushes as well."""
    layout = Layout((), (packed("float32", [4]),), rows, 4096, spare=max(0, LONG_FLUSH - rows))
    side = Playing(volleys(160.0, 80.0), behind_long_us, layout)
    check = side.clock()
    assert isinstance(check, ClockCheck)
    assert check.state == state
    assert {plan.calls for plan in side.plans} == {calls}
    assert all(plan.calls * plan.fills <= layout.regions for plan in side.plans)


def test_without_spare_regions_a_dispute_of_one_row_is_final() -> None:
    layout = Layout((), (packed("float32", [4]),), 1, 4096)
    side = Playing(volleys(160.0, 80.0), 78.0, layout)
    check = side.clock()
    assert isinstance(check, ClockCheck)
    assert (check.state, side.plans) == ("disputed", [])


@pytest.mark.parametrize(
    ("flush_mb", "output_mb", "rows", "regions"),
    [
        pytest.param(0.01, 0.01, 100, 100, id="small"),
        pytest.param(4, 4, 6, 6, id="as-many-as-fit"),
        pytest.param(2, 13, 2, 4, id="few-rows-get-spare-regions"),
        pytest.param(7, 13, 1, 4, id="two-rows-and-the-regions-do-not"),
        pytest.param(4, 30, 1, 4, id="one-row-gets-spare-regions"),
        pytest.param(30, 30, 1, 2, id="as-many-regions-as-fit"),
    ],
)
def test_rows_and_regions_stay_in_the_room_that_there_is(
    flush_mb: float, output_mb: float, rows: int, regions: int
) -> None:
    flush_bytes = int(flush_mb * 2**20)
    problem = SimpleNamespace(inputs=(2.0,), flush_bytes=flush_bytes, device="cpu")
    outputs = [["float32", [int(output_mb * 2**20) // 4]]]
    layout = plan_layout(problem, outputs, 100)  # type: ignore[arg-type]
    assert layout is not None
    assert (layout.rows, layout.regions, layout.kept) == (rows, regions, 2 if rows > 1 else 0)
    held = layout.regions * flush_bytes + (layout.rows + layout.kept) * output_mb * 2**20
    assert rows == 1 or held <= MOST_BYTES["cpu"]
    assert 2 * layout.most_calls(2) <= regions
