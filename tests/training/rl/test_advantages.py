"""Is each turn compared with what the other rollouts made of it, and with nothing else?"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkernel.training.rl.rollouts import CorrectTurn, advantages, rejected_turns, rewards_to_go

REWARD = st.floats(-2.0, 2.0, allow_nan=False)
ROLLOUTS = st.lists(st.lists(REWARD, min_size=1, max_size=4), min_size=2, max_size=6)
DISCOUNT = st.floats(0.0, 1.0)


def test_the_formula_by_hand() -> None:
    assert rewards_to_go([1.0, 2.0, 4.0], 0.5) == (3.0, 4.0, 4.0)
    assert rewards_to_go([1.0, None, 4.0], 0.5) == (None, None, 4.0)
    # Returns at the first turn: 2, 1, 4; at the second: 2, 2.
    found = advantages([[1.0, 2.0], [1.0], [3.0, 2.0]], 0.5)
    assert found == ((2 - 2.5, 0.0), (1 - 3.0,), (4 - 1.5, 0.0))


def test_a_turn_that_nobody_judged_says_nothing_of_the_one_before_it() -> None:
    found = advantages([[0.8, 0.8], [0.8, None], [0.8, 0.8]], 0.4)
    assert found == ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0))


@given(ROLLOUTS, DISCOUNT)
def test_the_advantages_of_a_turn_add_up_to_nothing(
    rewards: list[list[float]], discount: float
) -> None:
    found = advantages(rewards, discount)
    assert [len(item) for item in found] == [len(item) for item in rewards]
    for turn in range(max(map(len, rewards))):
        reached = [item[turn] for item in found if turn < len(item)]
        assert math.fsum(reached) == pytest.approx(0.0, abs=1e-9)


@given(REWARD, st.integers(1, 6), st.integers(1, 4), DISCOUNT)
def test_equal_rollouts_teach_nothing(
    reward: float, rollouts: int, turns: int, discount: float
) -> None:
    found = advantages([[reward] * turns] * rollouts, discount)
    assert found == ((0.0,) * turns,) * rollouts


@given(ROLLOUTS, DISCOUNT, st.floats(-3.0, 3.0), st.floats(0.1, 4.0))
def test_a_shift_changes_nothing_and_a_scale_scales(
    rewards: list[list[float]], discount: float, shift: float, scale: float
) -> None:
    # A shift of all rewards is the same for all only where all go on for as long.
    even = [[*item, *[0.0] * (4 - len(item))] for item in rewards]
    plain = advantages(even, discount)
    moved = advantages([[scale * r + shift for r in item] for item in even], discount)
    for ours, theirs in zip(moved, plain, strict=True):
        assert ours == pytest.approx([scale * value for value in theirs], abs=1e-9)


@given(ROLLOUTS, DISCOUNT, st.randoms())
def test_the_order_of_the_rollouts_does_not_matter(
    rewards: list[list[float]], discount: float, random: st.DataObject
) -> None:
    places = list(range(len(rewards)))
    random.shuffle(places)  # type: ignore[attr-defined]
    plain = advantages(rewards, discount)
    mixed = advantages([rewards[place] for place in places], discount)
    assert mixed == tuple(plain[place] for place in places)


@given(ROLLOUTS, DISCOUNT)
def test_ones_own_reward_is_no_part_of_what_it_is_compared_with(
    rewards: list[list[float]], discount: float
) -> None:
    before = advantages(rewards, discount)[0][0]
    richer = [[rewards[0][0] + 1.0, *rewards[0][1:]], *rewards[1:]]
    assert advantages(richer, discount)[0][0] - before == pytest.approx(1.0)


def test_one_alone_teaches_nothing() -> None:
    assert advantages([[1.0, -1.0]], 0.4) == ((0.0, 0.0),)
    assert advantages([[1.0], [0.0, 5.0]], 0.0)[1][1] == 0.0
    assert advantages([], 0.4) == ()


def test_what_nobody_judged_is_neither_learned_nor_a_yardstick() -> None:
    found = advantages([[None], [1.0], [0.0]], 0.4)
    assert found == ((0.0,), (1.0,), (-1.0,))


@given(
    st.lists(st.one_of(st.none(), st.floats(0.0, 1.0)), max_size=12),
    st.floats(0.05, 1.0),
)
def test_the_best_shares_are_kept(shares: list[float | None], keep: float) -> None:
    right = [CorrectTurn(2 * place, share) for place, share in enumerate(shares)]
    dropped = rejected_turns(right, keep)
    known = [item for item in right if item.own_share is not None]
    kept = [item for item in known if item.place not in dropped]
    assert dropped <= {item.place for item in known}
    assert len(kept) >= math.ceil(keep * len(known)) or not known
    lost = [item.own_share or 0.0 for item in known if item.place in dropped]
    assert all((item.own_share or 0.0) > share for item in kept for share in lost)


def test_equal_shares_are_all_kept_and_half_of_different_ones() -> None:
    assert rejected_turns([CorrectTurn(place, 1.0) for place in range(8)], 0.5) == frozenset()
    different = [CorrectTurn(0, 0.1), CorrectTurn(1, 0.9), CorrectTurn(2, 0.5), CorrectTurn(3, 0.7)]
    assert rejected_turns(different, 0.5) == {0, 2}
    assert rejected_turns(different, 1.0) == frozenset()
