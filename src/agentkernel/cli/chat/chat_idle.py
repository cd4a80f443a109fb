"""When may another thread do work that a turn must not meet?

Looking ahead swaps the process's stdout for a moment and takes a core. It is done only while the
prompt stands: never in a turn, so never beside a step that is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class IdleLock:
    """Held by the thread that converses, except while somebody types."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = False
        self._over = False

    def busy(self) -> None:
        """From here on nobody else works. Waits for what is at work; Ctrl-C ends the wait."""
        if not self._busy:
            self._lock.acquire()
            self._busy = True

    def free(self) -> None:
        """From here on others may."""
        if self._busy:
            self._busy = False
            self._lock.release()

    def leave(self) -> None:
        """Nobody begins any more; whoever waits to begin gives up."""
        self._over = True
        self.free()

    @contextmanager
    def typing(self) -> Iterator[None]:
        """While somebody types, others may work."""
        self.free()
        try:
            yield
        finally:
            self.busy()

    @contextmanager
    def work(self) -> Iterator[bool]:
        """For the other thread: wait until somebody types; False where the session is over."""
        with self._lock:
            yield not self._over
