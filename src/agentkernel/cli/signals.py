"""Signals that end a command or a session: Ctrl-C, SIGTERM, and SIGHUP from a closed terminal."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDING = (signal.SIGHUP, signal.SIGTERM)
WATCHED = (signal.SIGINT, *ENDING)
REPEATED_S = 2.0
"""Within this, another signal is the same wish: `timeout` and a closing shell send theirs twice."""


class SessionClosing(KeyboardInterrupt):
    """The session is to end: a step stops as at Ctrl-C, with the best so far kept."""


@dataclass
class SignalState:
    """Which signal asks for the end, 0: none. `stopped`: Ctrl-C was pressed since it was last set
    to False, whoever caught it."""

    signal: int = 0
    stopped: bool = False

    @property
    def exit_code(self) -> int:
        """As a shell counts it."""
        return 128 + self.signal


@contextmanager
def watch_signals() -> Iterator[SignalState]:
    """While it holds, Ctrl-C leaves its mark, a closed terminal (SIGHUP) or SIGTERM raises Closing
    once; where SIGHUP is ignored (nohup) it stays so."""
    closed = SignalState()
    terminals = terminal_files()

    def close(number: int, frame: FrameType | None) -> None:
        if closed.signal:
            return
        closed.signal = number
        if number == signal.SIGHUP:
            detach_terminals(terminals)
        raise SessionClosing

    def stop(number: int, frame: FrameType | None) -> None:
        closed.stopped = True
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in WATCHED}
    for number, handler in before.items():
        if number == signal.SIGINT:
            signal.signal(number, stop)
        elif handler is not signal.SIG_IGN:
            signal.signal(number, close)
    try:
        yield closed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupt_on_termination() -> Iterator[None]:
    """While it holds, SIGTERM and SIGHUP interrupt a command as Ctrl-C does; where one of them is
    ignored (nohup) it stays so."""
    terminals = terminal_files()
    last = -REPEATED_S

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < REPEATED_S:
            return
        last = now
        if number == signal.SIGHUP:
            detach_terminals(terminals)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def terminal_files() -> list[int]:
    """The standard files that are a terminal. After it is gone nobody can tell."""
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    files = [stream.fileno() for stream in streams if stream is not None and not stream.closed]
    return [file for file in files if os.isatty(file)]


def detach_terminals(terminals: list[int]) -> None:
    """Write to nowhere what was for a terminal that is gone: each write to it would fail."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for file in terminals:
        os.dup2(nowhere, file)
    os.close(nowhere)
