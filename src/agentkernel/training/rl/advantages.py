"""How much better than the others was a turn, and which right turns are worth learning from?

Turn-level leave-one-out (TRLOO) and profiling-based rejection sampling are of Dr. Kernel (arXiv
2602.05885): a mean over all rollouts holds the one that it is subtracted from, and shrinks its
gradient by 1 - 1/n; the mean of the others does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class CorrectTurn(NamedTuple):
    """A right turn: where it stands, and the share of its time in its own kernels, if known."""

    place: int
    own_share: float | None


def rewards_to_go(rewards: Sequence[float | None], discount: float) -> tuple[float | None, ...]:
    """G_t = sum over k >= t of discount^(k - t) r_k of one rollout.

    Where nobody knows a reward it is None, and so are its G and those of the turns before it.
    """
    found: list[float | None] = []
    later: float | None = 0.0
    for reward in reversed(rewards):
        later = None if reward is None or later is None else reward + discount * later
        found.append(later)
    return tuple(reversed(found))


def advantages(
    rewards: Sequence[Sequence[float | None]], discount: float
) -> tuple[tuple[float, ...], ...]:
    """Of each turn of each rollout of one problem: its reward-to-go less the mean of those of the
    other rollouts that reached that turn.

    0 where no other did, and where the reward is None: such a turn is no other's yardstick either.
    """
    returns = [rewards_to_go(item, discount) for item in rewards]
    return tuple(
        tuple(_advantage(returns, rollout, turn) for turn in range(len(item)))
        for rollout, item in enumerate(returns)
    )


def _advantage(returns: Sequence[Sequence[float | None]], rollout: int, turn: int) -> float:
    own = returns[rollout][turn]
    # Exact, so that equal returns have an advantage of exactly 0, in any order of the rollouts.
    others = [
        value
        for number, item in enumerate(returns)
        if number != rollout and turn < len(item) and (value := item[turn]) is not None
    ]
    if own is None or not others:
        return 0.0
    return math.fsum(own - value for value in others) / len(others)


def rejected_turns(right: Sequence[CorrectTurn], keep_at_most: float) -> frozenset[int]:
    """The places of those right turns that nothing is learned from: all but `keep_at_most` of
    them, the largest shares of their own kernels first.

    Only right turns are ever given up: wrong ones and cheats are what a model learns to avoid. One
    that is as good as the last that is kept is kept, and so is one whose share nobody knows.
    """
    known = sorted((item.own_share for item in right if item.own_share is not None), reverse=True)
    if not known:
        return frozenset()
    last = known[max(math.ceil(keep_at_most * len(known)), 1) - 1]
    return frozenset(
        item.place for item in right if item.own_share is not None and item.own_share < last
    )


__all__ = ["CorrectTurn", "advantages", "rejected_turns", "rewards_to_go"]
