"""Is only what lies beyond the noise of both called a move?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.bench.summary import compare
from tests.bench.bench_rows import broken, ratio, row, sample, suite, unmeasured


def move(before: float, after: float, width: float) -> str:
    olds = row("a", sample(before, vs_eager=ratio(before, width)))
    news = row("a", sample(after, vs_eager=ratio(after, width)))
    return compare([olds], [news]).moved[0].move


def test_what_moved() -> None:
    before = (*suite(), row("level3/gone", sample(1.0)))
    after = (
        row("level1/a", sample(2.5)),
        row("level1/b", sample(1.105)),
        row("level1/c", sample(1.4)),
        row("level2/d", sample(correct=False)),
        broken("level2/e"),
        row("level3/new", sample(1.0)),
    )
    found = compare(before, after)
    assert [item.move for item in found.moved] == ["faster", "same", "gained", "lost", "wrong"]
    assert (found.only_before, found.only_after) == (("level3/gone",), ("level3/new",))
    assert found.ratio == pytest.approx((2.5 / 2.0 * 1.105 / 1.1) ** 0.5)
    assert found.worse


def test_nothing_moves_against_itself() -> None:
    found = compare(suite(), suite())
    assert not found.worse
    assert {item.move for item in found.moved} == {"same", "wrong"}
    assert found.ratio == pytest.approx(1.0)


def test_what_nobody_measured_did_not_move() -> None:
    found = compare(unmeasured(), unmeasured())
    assert [item.move for item in found.moved] == ["not measured", "wrong"]
    assert (found.ratio, found.worse) == (None, False)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.001, 0.3))
def test_a_move_has_a_mirror_image(before: float, after: float, width: float) -> None:
    mirror = {"faster": "slower", "slower": "faster", "same": "same"}
    assert move(after, before, width) == mirror[move(before, after, width)]
    if move(before, after, width) == "faster":
        assert after > before
        assert move(before, after, 0.0005) == "faster", "less noise takes no move back"
