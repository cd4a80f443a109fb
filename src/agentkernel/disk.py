"""How is a failed write told in one line, and how does one process at a time work on a place?"""

from __future__ import annotations

import errno
import fcntl
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agentkernel.errors import AgentKernelError, OutputError

LOOK_AGAIN_S = 0.1
FULL = (errno.ENOSPC, errno.EDQUOT)
Line = Callable[[Path, str, bool], str]
"""The user's line, of the path, what the system says, and whether the disk is full."""


@contextmanager
def explaining(path: Path, line: Line) -> Iterator[None]:
    """Turn a failed write to `path` (file, folder or database) into an OutputError with `line`.

    A damaged database is no failed write: its sqlite3.DatabaseError goes through.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in FULL
        raise OutputError(line(path, error.strerror or str(error), full)) from error
    except sqlite3.OperationalError as error:
        raise OutputError(line(path, str(error), "full" in str(error))) from error


def hold(file: IO[str], busy: AgentKernelError, wait_s: float) -> None:
    """Be the only process that holds `file`, until it is closed or the process ends.

    Raises `busy` after `wait_s`: one that was killed holds on until the system has ended it.
    """
    end = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise busy from None
            time.sleep(LOOK_AGAIN_S)
