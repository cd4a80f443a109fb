"""Which question does a judge that is free take next?

To load and capture a module takes about as long as to judge a file for it, and a judge keeps what
it has loaded: so files for one module go to one judge, until others have nothing left to do.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence


class JudgeQueue:
    """The places of questions about `problems`, each handed out once. For several threads."""

    def __init__(self, problems: Sequence[str]) -> None:
        self._left: dict[str, deque[int]] = {}
        for place, problem in enumerate(problems):
            self._left.setdefault(problem, deque()).append(place)
        self._judges: Counter[str] = Counter()
        """How many judges took a question about it last."""
        self._problems = tuple(problems)
        self._lock = threading.Lock()

    def after(self, place: int | None) -> int | None:
        """The next question for the judge that answered `place` last, None where it has not begun:
        one about the same problem, else about one that nobody is at, else about any of which
        something is left. None where all are handed out."""
        with self._lock:
            last = None if place is None else self._problems[place]
            if not self._left:
                return None
            if last in self._left:
                return self._take(last)
            if last is not None:
                self._judges[last] -= 1
            # A problem that nobody is at comes before those that others are at, the longest first.
            found = min(
                self._left, key=lambda item: (self._judges[item] > 0, -len(self._left[item]))
            )
            self._judges[found] += 1
            return self._take(found)

    def clear(self) -> None:
        """Nothing is left for anybody."""
        with self._lock:
            self._left.clear()

    def _take(self, problem: str) -> int:
        places = self._left[problem]
        place = places.popleft()
        if not places:
            del self._left[problem]
        return place


__all__ = ["JudgeQueue"]
