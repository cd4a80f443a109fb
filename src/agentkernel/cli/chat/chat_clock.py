"""How does somebody at a terminal see that an answer is being worked out?"""

from __future__ import annotations

import threading
import time
from typing import IO

FIRST_S = 1.0
"""Seconds until anything is shown: most answers come sooner."""
EVERY_S = 1.0
ERASED = "\r\x1b[2K"


class ElapsedTime:
    """One line of `stream` that counts the seconds from `start` to `stop` and is then gone.

    It writes from a thread of its own to the stream that it was made with: whoever swaps stdout
    meanwhile swaps nothing here.
    """

    def __init__(
        self, stream: IO[str], width: int, first_s: float = FIRST_S, every_s: float = EVERY_S
    ) -> None:
        self._stream, self._width = stream, width
        self._first_s, self._every_s = first_s, every_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Count from now on."""
        self.stop()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._count, args=(self._ended, time.monotonic()), name="clock", daemon=True
        )
        self._thread.start()

    def stop(self) -> bool:
        """Take the line away where there is one; nothing is written after this. True where it
        counted."""
        counted = self._thread is not None
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        return counted

    def _count(self, ended: threading.Event, began: float) -> None:
        wait_s, shown = self._first_s, False
        while not ended.wait(wait_s):
            self._write(f"{ERASED}{words(time.monotonic() - began)[: self._width - 1]}")
            wait_s, shown = self._every_s, True
        if shown:
            self._write(ERASED)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone; the next answer finds out
            self._ended.set()


def words(seconds: float) -> str:
    """What the line says."""
    return f"Working, {seconds:.0f} s. Ctrl-C stops it."
