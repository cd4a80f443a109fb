"""What happens when the terminal closes under a session?"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDING = (signal.SIGHUP, signal.SIGTERM)


class Closing(KeyboardInterrupt):
    """The session is to end: a step stops as at Ctrl-C, with the best so far kept."""


@dataclass
class Closed:
    """Which signal asks for the end, 0: none."""

    signal: int = 0

    @property
    def exit_code(self) -> int:
        """As a shell counts it."""
        return 128 + self.signal


@contextmanager
def watched() -> Iterator[Closed]:
    """While it holds, a closed terminal (SIGHUP) or SIGTERM raises Closing once; where SIGHUP is
    ignored (nohup) it stays so."""
    closed = Closed()

    def close(number: int, frame: FrameType | None) -> None:
        if closed.signal:
            return
        closed.signal = number
        if number == signal.SIGHUP:
            leave_terminal()
        raise Closing

    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, close)
    try:
        yield closed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_terminal() -> None:
    """Write to nowhere what was for a terminal that is gone: each write to it would fail."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        if stream is not None and os.isatty(stream.fileno()):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
