"""The time that the run in force has left, known to whatever it waits for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from agentkernel.domain.errors import TimeIsUp

OVER = "the time limit was over"
SEARCH_SHARE = 1 / 3
"""Of what is left a search of schedules takes so much: what it finds has still to be judged."""

_left_s: ContextVar[Callable[[], float]] = ContextVar("left_s", default=lambda: math.inf)


@contextmanager
def limited_time(left_s: Callable[[], float]) -> Iterator[None]:
    """While this lasts, `time_left` is what `left_s` says, in seconds."""
    token = _left_s.set(left_s)
    try:
        yield
    finally:
        _left_s.reset(token)


def time_left() -> float:
    """Seconds until the time limit of the run in force; inf where there is none."""
    return _left_s.get()()


def require_time() -> None:
    """Raise TimeIsUp where the time limit is over."""
    if time_left() <= 0.0:
        raise TimeIsUp(OVER)


def search_seconds(most: float) -> float:
    """How long a search may take that would take `most` seconds."""
    return min(most, SEARCH_SHARE * max(time_left(), 0.0))
