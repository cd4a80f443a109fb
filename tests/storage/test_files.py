"""Failed writes are one line, and a lock is held by one process at a time."""

from __future__ import annotations

import errno
import sqlite3
import time
from pathlib import Path

import pytest

from agentkernel.domain.errors import OutputError, RunBusy
from agentkernel.storage.files import explain_os_error, lock_open_file


def line(path: Path, problem: str, full: bool) -> str:
    return f"{path.name}: {problem}, {full}"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EACCES, "Permission denied"), "x: Permission denied, False"),
        (OSError(errno.ENOSPC, "No space"), "x: No space, True"),
        (OSError(errno.EDQUOT, "Quota"), "x: Quota, True"),
        (sqlite3.OperationalError("database or disk is full"), "x: database or disk is full, True"),
        (sqlite3.OperationalError("database is locked"), "x: database is locked, False"),
    ],
)
def test_a_failed_write_is_told(error: Exception, said: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught, explain_os_error(tmp_path / "x", line):
        raise error
    assert str(caught.value) == said


def of_sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("made up")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (OSError(errno.EACCES, "Permission denied"), 2),
        (OSError(errno.ENOTDIR, "Not a directory"), 2),
        (OSError(errno.ENOSPC, "No space"), 4),
        (OSError(errno.EROFS, "Read-only file system"), 4),
        (OSError(errno.EIO, "Input/output error"), 4),
        (of_sqlite(sqlite3.SQLITE_FULL), 4),
        (of_sqlite(sqlite3.SQLITE_IOERR_WRITE), 4),
        (of_sqlite(sqlite3.SQLITE_BUSY), 4),
        (of_sqlite(sqlite3.SQLITE_CANTOPEN), 2),
        (of_sqlite(sqlite3.SQLITE_READONLY), 2),
    ],
)
def test_whose_fault_a_failed_write_is(error: Exception, exit_code: int, tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught, explain_os_error(tmp_path / "x", line):
        raise error
    assert caught.value.exit_code == exit_code


@pytest.mark.parametrize("error", [sqlite3.DatabaseError("malformed"), ValueError("a bug")])
def test_damage_and_bugs_go_through(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error), match=str(error)), explain_os_error(tmp_path, line):
        raise error


def test_a_lock_is_waited_for_and_let_go(tmp_path: Path) -> None:
    busy = RunBusy("busy")
    with (tmp_path / "lock").open("a") as first, (tmp_path / "lock").open("a") as second:
        lock_open_file(first, busy, 0.0)
        begin = time.monotonic()
        with pytest.raises(RunBusy, match="busy"):
            lock_open_file(second, busy, 0.2)
        assert time.monotonic() - begin >= 0.2
    with (tmp_path / "lock").open("a") as third:
        lock_open_file(third, busy, 0.0)
