"""Which workers were started ahead of need, so that nobody waits for their imports?"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Hashable, Iterator
from typing import Generic, Protocol, TypeVar

MOST_IDLE = 3


class Closable(Protocol):
    """What a shelf holds."""

    @property
    def alive(self) -> bool: ...

    def close(self) -> None: ...


Item = TypeVar("Item", bound=Closable)


class IdleWorkers(Generic[Item]):
    """At most `MOST_IDLE` workers that nobody has used yet; each leaves it once, for good.

    What is left is closed when the interpreter ends. A process that dies otherwise takes its
    workers along: their life line closes.
    """

    def __init__(self) -> None:
        self._items: list[tuple[Hashable, Item]] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()
        atexit.register(self.clear)

    def put(self, key: Hashable, item: Item) -> None:
        """Keep `item` for whoever asks for `key`; the oldest one makes room."""
        with self._lock:
            self._items.append((key, item))
            surplus = self._items[:-MOST_IDLE]
            del self._items[:-MOST_IDLE]
        for _, old in surplus:
            old.close()

    def take(self, key: Hashable) -> Item | None:
        """The item of that key that waited longest; None where there is none alive."""
        with self._lock:
            if self._owner != os.getpid():
                return None
            for place, (held, item) in enumerate(self._items):
                if held == key and item.alive:
                    del self._items[place]
                    return item
        return None

    def clear(self) -> None:
        """Close all that nobody took."""
        with self._lock:
            items, self._items = self._items, []
        if self._owner == os.getpid():
            for _, item in items:
                item.close()

    def count(self, key: Hashable) -> int:
        """How many of that key are alive."""
        with self._lock:
            return sum(held == key and item.alive for held, item in self._items)

    def __iter__(self) -> Iterator[Item]:
        with self._lock:
            return iter([item for _, item in self._items])
