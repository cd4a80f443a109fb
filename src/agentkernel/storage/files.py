"""Atomic writes, locked files, one-line messages for failed writes, and the XDG folders.

https://specifications.freedesktop.org/basedir-spec/latest/
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import secrets
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agentkernel.domain.errors import AgentKernelError, DiskFailure, OutputError, SettingError

LOOK_AGAIN_S = 0.1
MOST_TEXT = 2**28
"""Bytes of a record that is read whole."""
CLOSED = os.O_CLOEXEC | os.O_NOCTTY
"""For every file: no child inherits it, and none becomes the terminal."""
ROOM_BYTES = 2**20
"""What a library that keeps an index needs beside it: less fails in the middle of a write."""
LONGEST_NAME = 200
"""Bytes of somebody's name in the name of a file, which a file system bounds at 255."""
LONGEST_DATABASE_PATH = 500
"""Bytes: SQLite opens no longer path than 512 with the suffixes of its journals
(MAX_PATHNAME in its os_unix.c)."""
RUNS_FOLDER = "agentkernel-runs"
"""Where runs lie that were told no other place."""
FLAGS = "--runs or --out"
"""Where users choose most of what is written."""
FULL = (errno.ENOSPC, errno.EDQUOT)
MACHINES = (*FULL, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENFILE, errno.EMFILE, errno.ENOLCK)
"""What no other command would fix, unlike a path that is wrong or not the user's to write."""
MACHINES_SQLITE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
)
Line = Callable[[Path, str, bool], str]
"""The user's line, of the path, what the system says, and whether the disk is full."""


@contextmanager
def explain_os_error(path: Path, line: Line) -> Iterator[None]:
    """Turn a failed write to `path` (file, folder or database) into an OutputError with `line`;
    into a DiskFailure where the machine, not the path, is at fault.

    A damaged database is no failed write: its sqlite3.DatabaseError goes through.
    """
    try:
        yield
    except OSError as error:
        told = line(path, error.strerror or str(error), error.errno in FULL)
        raise (DiskFailure if is_machine_fault(error) else OutputError)(told) from error
    except sqlite3.OperationalError as error:
        told = line(path, _sqlite_words(path, error), "full" in str(error))
        machines = is_machine_fault(error) or is_read_only(path)
        raise (DiskFailure if machines else OutputError)(told) from error


def room_failure(folder: Path) -> OSError | None:
    """Why `folder` cannot take `ROOM_BYTES` more, which are written and removed again; None: it
    can. What fails there is no damage of what lies there."""
    probe = folder / f".room.{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(ROOM_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return None


def is_read_only(path: Path) -> bool:
    """Whether `path` lies on a disk that is mounted read-only."""
    for folder in (path, *path.absolute().parents):
        with contextlib.suppress(OSError):
            return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return False


def _sqlite_words(path: Path, error: sqlite3.OperationalError) -> str:
    """What SQLite says, or what it does not say: why it cannot open a file."""
    length = len(os.fsencode(path.absolute()))
    if length > LONGEST_DATABASE_PATH and "unable to open" in str(error):
        return f"its path has {length} bytes, SQLite opens at most {LONGEST_DATABASE_PATH}"
    return "the disk is read-only" if is_read_only(path) else str(error)


def is_machine_fault(error: OSError | sqlite3.OperationalError) -> bool:
    """Whether a write failed by the machine's fault, so that the same command may succeed later."""
    if isinstance(error, OSError):
        return error.errno in MACHINES
    # The low byte; the rest says more closely what happened (https://sqlite.org/rescode.html).
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in MACHINES_SQLITE


def fit_file_name(name: str) -> str:
    """As much of `name` as the name of a file has room for beside what is added to it."""
    return os.fsencode(name)[:LONGEST_NAME].decode(errors="ignore")


def read_regular(path: Path, most: int | None = None, *, typed: bool = False) -> bytes:
    """The bytes of a file in a folder that somebody else may have made: no pipe is waited for, no
    device read, and no link followed. Of a path that the user `typed` links are followed, and what
    a shell hands over below /dev or /proc is read.

    Raises OSError for what is no regular file, or has more than `most` bytes.
    """
    handed_over = typed and (path.is_relative_to("/dev") or path.is_relative_to("/proc"))
    opened = path.open("rb") if handed_over else open_regular(path, linked=typed)
    with opened as file:
        size = os.fstat(file.fileno()).st_size
        # A file that is too large is not read to see that. Room for all that is asked for is made
        # at once, so no more is than the file has; a pipe has no size.
        asked = -1 if most is None else most + 1 if handed_over else min(size, most) + 1
        data = b"" if most is not None and size > most else file.read(asked)
    if most is not None and max(size, len(data)) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data


def read_regular_text(path: Path, *, typed: bool = False) -> str:
    """The same of at most MOST_TEXT bytes, as text in UTF-8. Raises OSError, UnicodeDecodeError."""
    data = read_regular(path, MOST_TEXT, typed=typed)
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()


def open_regular(path: Path, *, linked: bool = False) -> IO[bytes]:
    """A regular file to read, as `read_regular` has it; a link to one where `linked`. Raises
    OSError."""
    return os.fdopen(_open_regular(path, os.O_RDONLY, linked=linked), "rb")


def open_new(path: Path, mode: int = 0o666) -> IO[bytes]:
    """A new file to write; nothing that is there already is opened. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSED, mode), "wb")


def open_append(path: Path) -> IO[bytes]:
    """A regular file to read and to write at its end, made where none is. Raises OSError."""
    return os.fdopen(_open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b")


def refuse_strange(path: Path, *, linked: bool = False) -> None:
    """Raise OSError where a file is to be opened or written and something lies there that is none:
    a link would lead the write elsewhere, unless that is what the user wants (`linked`)."""
    with contextlib.suppress(FileNotFoundError):
        found = path.stat() if linked else os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, _kind(found.st_mode), str(path))


def make_own_folder(path: Path) -> None:
    """Make the folder `path` in one that is there. Raises OSError where it is a link, which would
    lead what is written into it elsewhere."""
    path.mkdir(exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, _kind(found.st_mode), str(path))


def _open_regular(path: Path, flags: int, *, linked: bool = False) -> int:
    # Not blocking: a pipe without a writer would be waited for.
    flags |= CLOSED | os.O_NONBLOCK | (0 if linked else os.O_NOFOLLOW)
    try:
        number = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            refuse_strange(path)
        raise
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, _kind(found.st_mode), str(path))
    return number


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "it is a symbolic link"),
        (stat.S_ISDIR, "it is a folder"),
        (stat.S_ISFIFO, "it is a named pipe"),
    )
    return next((words for asked, words in kinds if asked(mode)), "it is no regular file")


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file, which is read in pieces. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock_open_file(
    file: IO[str] | IO[bytes],
    busy: AgentKernelError,
    wait_s: float,
    again_s: float = LOOK_AGAIN_S,
) -> None:
    """Be the only process that holds `file`, until it is closed or the process ends; asked for
    every `again_s`.

    Raises `busy` after `wait_s`: one that was killed holds on until the system has ended it.
    """
    end = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise busy from None
            time.sleep(again_s)


def config_folder() -> Path:
    """`$XDG_CONFIG_HOME/agentkernel`, else `~/.config/agentkernel`. Raises SettingError."""
    return _below("XDG_CONFIG_HOME", ".config")


def data_folder() -> Path:
    """`$XDG_DATA_HOME/agentkernel`, else `~/.local/share/agentkernel`. Raises SettingError."""
    return _below("XDG_DATA_HOME", ".local/share")


def expanded(path: str) -> Path:
    """`path` with the home folder in place of `~`. Raises SettingError where there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise SettingError(
            f"No home folder for {path!r}. Expected HOME to name one, or the user to have one. "
            "Next: set HOME, or name the folder."
        ) from error


def _below(variable: str, usual: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base else expanded(f"~/{usual}")) / "agentkernel"


def write_atomic(path: Path, content: str | bytes, flag: str = FLAGS, mode: int = 0o666) -> None:
    """Write to a neighbour, flush it to disk, then rename it over `path`, which the user chose by
    `flag`; `mode` less the process's mask says who may use it. Raises OutputError."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with explain_write_failure(path, flag):
        refuse_strange(path)
        try:
            with open_new(temporary, mode) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create `path` with its parents and prove that it can be written to. Raises OutputError."""
    with explain_write_failure(path):
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".probe.{os.getpid()}.{secrets.token_hex(4)}"
        open_new(probe).close()
        probe.unlink()


def require_writable(folder: Path) -> None:
    """Prove that `folder` is there, or could be made, and takes files; nothing is left behind.
    Raises OutputError."""
    with explain_write_failure(folder):
        place = folder.absolute()
        while not place.exists():
            place = place.parent
        tempfile.TemporaryFile(dir=place).close()


@contextlib.contextmanager
def hold_file_lock(lock: Path, busy: AgentKernelError, wait_s: float) -> Iterator[IO[bytes]]:
    """Hold the file `lock`, open to append, made where none is, which stays. Raises `busy` where
    another process still holds it after `wait_s`, OutputError."""
    with explain_write_failure(lock):
        file = open_append(lock)
    with file:
        lock_open_file(file, busy, wait_s)
        yield file


@contextlib.contextmanager
def try_file_lock(lock: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the file `lock`, made where none is, which stays; False at once where another process
    holds it and nobody is to `wait`."""
    with open_append(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def explain_write_failure(path: Path, flag: str = FLAGS) -> contextlib.AbstractContextManager[None]:
    """Turn a failed write to `path` (file, folder or database), which the user chose by `flag`,
    into one clear OutputError."""

    def line(path: Path, problem: str, full: bool) -> str:
        if full:
            return (
                f"No room left on the disk of {str(path)!r}. What was finished before is saved "
                "there. Next: make room, then 'agentkernel resume' goes on from it."
            )
        return (
            f"Cannot write {str(path)!r}: {problem}. Expected a folder that can be written to. "
            f"Next: choose another with {flag}."
        )

    return explain_os_error(path, line)


def append_line(path: Path, line: str) -> None:
    """Add `line` to a file of lines and flush it to disk; what a kill left of a line before it is
    cut away. Raises OutputError."""
    with explain_write_failure(path), open_append(path) as file:
        _cut_torn_line(file.fileno())
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _cut_torn_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, size, 0)
    if text and not text.endswith(b"\n"):
        os.ftruncate(descriptor, text.rfind(b"\n") + 1)
