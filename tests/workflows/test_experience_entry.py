from pathlib import Path

import pytest

from agentkernel.agents.history import (
    ALIKE,
    CLEAR_SLOWDOWN,
    SHORT,
    experience_holds,
    follow_experience,
    matches_baselines,
    schedules_apart,
    shapes_apart,
    starting_experience,
    winner_for,
)
from agentkernel.domain.knowledge import Verified
from agentkernel.domain.plan import Hypothesis, Retrieved, Won
from agentkernel.domain.profile import Call, Ratio
from tests.workflows.fakes import attempt, measurement, small_problem


def won(
    strategy: str = "fused",
    *,
    shapes: tuple[tuple[int, ...], ...] = ((4, 8),),
    measured: bool = True,
    lost: dict[str, float] | None = None,
    roofline: float | None = None,
    family: str = "hopper",
) -> Won:
    return Won(
        strategy=strategy, coder="compiler", label="k BLOCK_N=8", family=family, shapes=shapes,
        measured=measured, lost=lost or {}, roofline=roofline,
    )  # fmt: skip


def found(
    name: str,
    what: Won | None,
    similarity: float | None = 1.0,
    verified: Verified = "gpu",
    source: str = "run 1",
) -> Retrieved:
    return Retrieved(
        id=f"experience/{name}", title=name, kind="experience", source=source,
        licence="not stated", score=0.1, text="", similarity=similarity, verified=verified,
        won=what,
    )  # fmt: skip


def tried(*strategies: str) -> list[Hypothesis]:
    return [Hypothesis(strategy=name, reason=f"try {name}") for name in strategies]


def start(tmp_path: Path, *items: Retrieved) -> str | None:
    chosen = starting_experience(items, "hopper", small_problem(tmp_path).problem)
    return chosen.id if chosen else None


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (found("a", won()), "experience/a"),
        (found("a", won(), ALIKE), "experience/a"),
        (found("a", won(), ALIKE - 0.01), None),
        (found("a", won(), None), None),
        (found("a", None), None),
        (found("a", won(family="ada")), None),
    ],
)
def test_one_starts_from_the_like_on_the_same_family(
    tmp_path: Path, item: Retrieved, expected: str | None
) -> None:
    assert start(tmp_path, item) == expected


def test_the_most_alike_goes_first_then_what_was_measured_then_the_nearest_sizes(
    tmp_path: Path,
) -> None:
    near, far = won(shapes=((4, 16),)), won(shapes=((4, 64),))
    guessed = won(measured=False)
    assert start(tmp_path, found("far", far), found("near", near)) == "experience/near"
    assert start(tmp_path, found("guessed", guessed), found("far", far)) == "experience/far"
    items = (found("near", near, 0.96), found("guessed", guessed, 0.99))
    assert start(tmp_path, *items) == "experience/guessed"


FOREIGN_RUN = "imported: run 1"


def test_what_was_not_verified_is_never_a_start(tmp_path: Path) -> None:
    assert start(tmp_path, found("a", won(), verified="no")) is None
    items = (found("a", won(), verified="no"), found("b", won(), 0.96, "interpreter"))
    assert start(tmp_path, *items) == "experience/b"


def test_of_equals_the_verified_then_the_own_then_the_fastest_goes_first(tmp_path: Path) -> None:
    near, far = won(shapes=((4, 16),)), won(shapes=((4, 64),))
    guessed = won(measured=False)
    items = (found("a", near, verified="interpreter"), found("b", far, source=FOREIGN_RUN))
    assert start(tmp_path, *items) == "experience/b"
    assert start(tmp_path, found("a", near, source=FOREIGN_RUN), found("b", far)) == "experience/b"
    items = (found("a", near, 1.0, "interpreter", FOREIGN_RUN), found("b", guessed, 1.0))
    assert start(tmp_path, *items) == "experience/b"
    slow, fast = won(roofline=0.5), won(roofline=0.9)
    assert start(tmp_path, found("a", slow), found("b", fast)) == "experience/b"
    assert start(tmp_path, found("a", won()), found("b", slow)) == "experience/b"


def test_distance_of_shapes_is_counted_in_doublings() -> None:
    assert shapes_apart(((4, 8),), ((4, 8),)) == 0
    assert shapes_apart(((4, 8),), ((8, 2),)) == 3
    assert shapes_apart(((4, 8),), ((4, 8, 1),)) == float("inf")
    assert shapes_apart(((0,),), ((2,),)) == 1
    assert shapes_apart(((10**400,),), ((8,),)) > 1000


def test_the_winner_goes_first_and_clear_losers_are_left_out() -> None:
    slow = {"lifted": CLEAR_SLOWDOWN, "library": CLEAR_SLOWDOWN - 0.01}
    made = follow_experience(
        tried("library", "lifted", "fused", "algebra"), found("a", won(lost=slow))
    )
    assert made is not None
    assert [item.strategy for item in made] == ["fused", "library", "algebra"]
    assert [item.because for item in made] == ["experience/a", "", ""]
    assert made[0].reason == "it won in experience/a; try fused"


def test_nothing_follows_from_a_strategy_that_is_not_offered() -> None:
    assert follow_experience(tried("gemm"), found("a", won())) is None


def test_a_hypothesis_is_told_what_it_rests_on() -> None:
    what = won()
    items = (found("b", won("gemm")), found("a", what))
    hypothesis = tried("fused")[0]
    assert winner_for(hypothesis, items) is None
    assert winner_for(hypothesis.evolve(because="experience/a"), items) == what


def test_the_nearest_schedule_has_the_nearest_constants() -> None:
    there = {"k": {"BLOCK_N": 4096, "num_warps": 16}}
    held = ("looped",)

    def apart(block: int, warps: int, form: str = "looped", name: str = "k") -> float:
        return schedules_apart(there, {name: {"BLOCK_N": block, "num_warps": warps}}, held, (form,))

    assert apart(4096, 16) == 0
    assert apart(2048, 16) == 1
    assert apart(4096, 16, name="other") == 0
    assert apart(1024, 4) == 4
    assert apart(4096, 16, "persistent") == 4
    assert schedules_apart(there, {"k": {"BLOCK_N": 4096}}, held, held) == 1
    assert schedules_apart(there, {}, held, ()) == 8


FAST, SLOW = Ratio(value=1.3, low=1.28, high=1.32), Ratio(value=0.9, low=0.88, high=0.92)


@pytest.mark.parametrize(
    ("call", "expected"),
    [("same", True), ("faster", True), ("slower", False), ("too_noisy", False)],
)
def test_level_with_the_baselines(call: Call, expected: bool) -> None:
    tie = Ratio(value=1.0, low=0.995, high=1.004, call=call)
    assert matches_baselines(attempt(measurement(FAST, tie)).profile) is expected
    assert not matches_baselines(None)


def test_a_start_holds_where_it_is_right_and_fast() -> None:
    what = won(roofline=0.8)
    good = measurement(FAST, FAST, roofline=0.8 * SHORT)
    assert experience_holds([attempt(good)], what)
    assert experience_holds([attempt(name="b", profiled=False), attempt(good)], what)


@pytest.mark.parametrize(
    "case",
    [
        [],
        [attempt(judged=False)],
        [attempt(profiled=False)],
        [attempt(measurement(FAST, SLOW, roofline=0.8))],
        [attempt(measurement(SLOW, FAST, roofline=0.8))],
        [attempt(measurement(FAST, FAST, roofline=0.8 * SHORT - 0.01))],
        [attempt(fits=False)],
    ],
)
def test_a_start_that_disappoints_does_not_hold(case: list[object]) -> None:
    assert not experience_holds(case, won(roofline=0.8))  # type: ignore[arg-type]


def test_without_a_measurement_the_estimate_decides() -> None:
    assert experience_holds([attempt()], won())
