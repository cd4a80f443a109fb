"""Which few schedules of a family does an experience leave to be tried?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from agentkernel.agents.experience import schedules_apart
from agentkernel.compiler.drop_in.wrapper import DropInSource
from agentkernel.domain.plan import Won

NEIGHBOURS = 2
"""Schedules tried beside the one nearest to the winner: other sizes may move the best a step."""
GUESSES = 2
"""Of the order without any experience, the first so many stay in: what was learned may mislead."""


class ScheduledDraft(Protocol):
    """A drop-in of the family."""

    @property
    def source(self) -> DropInSource: ...

    @property
    def forms(self) -> tuple[str, ...]: ...


Some = TypeVar("Some", bound=ScheduledDraft)


def narrow_by_experience(family: Sequence[Some], won: Won) -> list[Some]:
    """The nearest schedule to the one that won, its next neighbours, then the best guesses.

    `family` is best guess first; of equally near ones the better guess is taken.
    """
    places = range(len(family))
    near = sorted(places, key=lambda place: (_apart(family[place], won), place))
    chosen = dict.fromkeys((*near[: 1 + NEIGHBOURS], *places[:GUESSES]))
    return [family[place] for place in chosen]


def _apart(item: ScheduledDraft, won: Won) -> float:
    return schedules_apart(item.source.schedule, won.schedule, item.forms, won.forms)
