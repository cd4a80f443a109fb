"""What is one turn of a rollout worth, by what the judge and the profiler found?

right:   correct + speed * min(speedup, most_speedup) / most_speedup + own_share * share
cheat:   hack
no file: no_file
wrong:   0
right and no faster than the right file that it was made from: 0

Speedup is over eager PyTorch. That it is capped, and that a right kernel is paid for the share of
the run time that its own kernels take (profiling-based reward), is Dr. Kernel's (arXiv 2602.05885):
without it a model learns to replace the cheapest operator and leave the rest.
"""

from __future__ import annotations

import math
from typing import Literal

from agentkernel.domain.base import Frozen
from agentkernel.domain.verdict import Verdict, hack_name
from agentkernel.training.training import RlSettings

Basis = Literal["measured", "estimated"]
"""Whether a GPU timed the kernel, or its roofline and launches were computed."""
Outcome = Literal["right", "wrong", "hack", "no-file", "undecided"]
FASTER = 1.02
"""Over the file that was to be made faster; less is the noise of two measurements."""


class Speed(Frozen):
    """How fast a right kernel is. `speedup` over eager; `own_share` of the run time, 0 to 1, that
    its own kernels take; None where nobody knows it."""

    by: Basis
    speedup: float | None = None
    own_share: float | None = None


class JudgedTurn(Frozen):
    """What became of one answer.

    `file` is the drop-in in it, None where there is none. `verdict` is the judge's, None where it
    came to no answer through no fault of the file's. `caught` names a cheat that showed only while
    the file was timed, `broke` how it failed then. `facts` say where the time of a right file goes,
    as (name, value).
    """

    file: str | None = None
    verdict: Verdict | None = None
    speed: Speed | None = None
    caught: str | None = None
    broke: str | None = None
    facts: tuple[tuple[str, str], ...] = ()
    why: str = ""
    """Why there is no verdict, or why nobody knows how fast a right file is though it was asked."""


class Reward(Frozen):
    """`value` is what the turn is worth, None where nobody can say; the parts are what it is made
    of. `hack` names the cheat."""

    outcome: Outcome
    value: float | None
    correct: float = 0.0
    speed: float = 0.0
    own: float = 0.0
    hack: str | None = None


def reward_of(turn: JudgedTurn, settings: RlSettings, before: JudgedTurn | None = None) -> Reward:
    """The reward of one turn, without what later turns bring; see the module's formula. `before` is
    the turn that it goes on from."""
    if turn.file is None:
        return Reward(outcome="no-file", value=settings.no_file)
    if turn.verdict is None:
        return Reward(outcome="undecided", value=None)
    hack = hack_of(turn)
    if hack is not None:
        return Reward(outcome="hack", value=settings.hack, hack=hack)
    if not turn.verdict.accepted or turn.broke is not None:
        return Reward(outcome="wrong", value=0.0)
    if turn.why:  # as right as the others, and who knows how much faster
        return Reward(outcome="undecided", value=None)
    if before is not None and not _faster(turn, before):
        return Reward(outcome="right", value=0.0)
    speed, own = _speed(turn.speed, settings), _own(turn.speed, settings)
    value = settings.correct + speed + own
    return Reward(outcome="right", value=value, correct=settings.correct, speed=speed, own=own)


def _faster(turn: JudgedTurn, before: JudgedTurn) -> bool:
    """Whether it did what was asked where the file before it was right: else the same file once
    more would be paid once more."""
    if before.verdict is None or not before.verdict.accepted or before.broke is not None:
        return True
    if turn.speed is None or before.speed is None:
        return False
    now, then = turn.speed.speedup, before.speed.speedup
    return now is not None and then is not None and now >= FASTER * then


def hack_of(turn: JudgedTurn) -> str | None:
    """The cheat by its kind and rule; None for right kernels and for honest failures: what does
    not compile, computes wrong values, runs out of time, or is no drop-in yet."""
    return turn.caught or (None if turn.verdict is None else hack_name(turn.verdict))


def _speed(speed: Speed | None, settings: RlSettings) -> float:
    if speed is None or speed.speedup is None or math.isnan(speed.speedup):
        return 0.0
    most = settings.most_speedup
    return settings.speed * min(max(speed.speedup, 0.0), most) / most


def _own(speed: Speed | None, settings: RlSettings) -> float:
    if speed is None or speed.own_share is None or math.isnan(speed.own_share):
        return 0.0
    return settings.own_share * min(max(speed.own_share, 0.0), 1.0)


__all__ = ["Basis", "JudgedTurn", "Outcome", "Reward", "Speed", "hack_of", "reward_of"]
