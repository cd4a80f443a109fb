"""The standard streams of a command: each is there, and a failed write to the output is told."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agentkernel.domain.errors import OutputLost
from agentkernel.storage.disk import FULL

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
