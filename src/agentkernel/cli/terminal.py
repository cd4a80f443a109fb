"""The streams of a command, what it writes to them, and the signals that end it.

The standard streams are open while a command runs, and a failed write to stdout raises
`OutputLost`. SIGTERM and SIGHUP interrupt a command as Ctrl-C does, unless they are ignored, as
under nohup. Text of any origin is escaped, so that it cannot steer the terminal; JSON is ASCII.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO, TYPE_CHECKING, Protocol

from agentkernel.domain.errors import OutputLost
from agentkernel.domain.plain_text import plain, plain_line
from agentkernel.storage.files import FULL

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Dumped(Protocol):
    """A pydantic value."""

    def model_dump_json(self, *, ensure_ascii: bool = False) -> str:
        """It as JSON."""


def print_plain(text: object = "", *, error: bool = False) -> None:
    """Print lines, whoever wrote the words in them, to stdout or stderr at once."""
    print(plain(str(text)), file=sys.stderr if error else sys.stdout, flush=True)


def print_json(value: Dumped | dict[str, object] | list[dict[str, object]]) -> None:
    """One JSON value on one line, at once."""
    print(json_line(value), flush=True)


def json_line(value: Dumped | dict[str, object] | list[dict[str, object]]) -> str:
    """`value` as JSON in ASCII, so that no text in it steers a terminal; an infinite figure is a
    string, as in a value's own JSON."""
    if isinstance(value, dict | list):
        return json.dumps(_named_infinities(value))
    return value.model_dump_json(ensure_ascii=True)


def _named_infinities(value: object) -> object:
    if isinstance(value, dict):
        return {key: _named_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named_infinities(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value


def print_failure(line: str, exit_code: int, kind: str, *, as_json: bool) -> None:
    """The one line of a failure: on stderr, and as an object on stdout where JSON is asked for."""
    text = plain_line(" ".join(line.split()))
    if as_json:
        print_json({"error": text, "kind": kind, "exit_code": exit_code})
    with contextlib.suppress(OSError):  # nobody is left to be told
        print(f"agentkernel: {text}", file=sys.stderr, flush=True)


STDOUT = 1
CLOSED = (
    "The standard output is closed. Expected one that can be written. Next: name a file or "
    "/dev/null for it."
)


class _Output(io.FileIO):
    """The standard output, whose failure is no failure of a file that the command works on."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputLost(_lost(error)) from error


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """While it holds, all three streams are open, and a write to stdout raises OutputLost where
    it fails. Raises OutputLost where stdout was closed from the start: the next file that is
    opened would be it."""
    opened = _open_closed()
    if STDOUT in opened:
        raise OutputLost(CLOSED)
    before = sys.stdout
    before.flush()
    output = io.BufferedWriter(_Output(STDOUT, "w", closefd=False))
    # A name that is no UTF-8 is shown escaped: nothing can be printed of it as it is.
    sys.stdout = io.TextIOWrapper(
        output, before.encoding, "backslashreplace", line_buffering=os.isatty(STDOUT)
    )
    try:
        yield
        sys.stdout.flush()
    except OutputLost:
        discard_output()
        raise


def discard_output() -> None:
    """Write to nowhere what is still to be written: each further write would fail."""
    file = os.open(os.devnull, os.O_WRONLY)
    os.dup2(file, STDOUT)
    os.close(file)


def _open_closed() -> set[int]:
    """Open /dev/null for each standard stream that is closed; which ones were."""
    closed = set()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDWR)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    return closed


def _lost(error: OSError) -> str:
    if isinstance(error, BrokenPipeError):
        return "The reader of the output went away."
    mend = (
        "make room, or name another place for it" if error.errno in FULL else "name another place"
    )
    return f"Cannot write the standard output: {error.strerror or error}. Next: {mend}."


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


ERASED = "\r\x1b[2K"


SILENCE_S = 30.0
"""In a pipe a line says what is being done after so many seconds without one."""


class ElapsedTime:
    """One line of `stream` that counts the seconds from `start` to `stop` and is then gone: the
    `words` for the seconds so far, first after `first_s`, then every `every_s`. With `lines`, in a
    pipe, each of them is a line of its own that stays.

    It writes from a thread of its own to the stream that it was made with: whoever swaps stdout
    meanwhile swaps nothing here.
    """

    def __init__(
        self,
        stream: IO[str],
        width: int,
        words: Callable[[float], str],
        *,
        first_s: float,
        every_s: float,
        lines: bool = False,
    ) -> None:
        self._lines = lines
        self._stream, self._width, self._words = stream, width, words
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
            if self._lines:
                self._write(f"{plain_line(self._words(time.monotonic() - began))}\n")
                wait_s = self._every_s
                continue
            self._write(f"{ERASED}{self._words(time.monotonic() - began)[: self._width - 1]}")
            wait_s, shown = self._every_s, True
        if shown:
            self._write(ERASED)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone; the next answer finds out
            self._ended.set()


SOON_S = 0.1
"""Seconds until a line says what a command loads, and between two of its lines."""
COLUMNS = 80
"""Columns where no terminal says how many it has."""


@contextmanager
def collector_off() -> Iterator[None]:
    """While it holds no garbage is looked for: imports make little, and it costs them a fifth."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def loading(*, silent: bool = False) -> Iterator[None]:
    """While it holds, a line on a terminal's stderr counts the seconds of a start; `silent`, or in
    a pipe: nothing."""
    if silent or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield
        return
    width = stderr_columns()
    clock = ElapsedTime(sys.stderr, width, loading_words, first_s=SOON_S, every_s=SOON_S)
    clock.start()
    try:
        yield
    finally:
        clock.stop()


def stderr_columns() -> int:
    """Columns of the terminal that stderr is."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
    except OSError:  # it is none to the system
        return COLUMNS


def loading_words(seconds: float) -> str:
    """`loading torch, 1.2 s` from the moment at which it is imported."""
    what = "loading torch" if "torch" in sys.modules else "starting"
    return f"{what}, {seconds:.1f} s"
