"""A session's folder on the machine that judges: texts, files of problems, finished answers.

It outlives a lost line, so that what was finished is not done again, and goes with the session.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import OutputError, RunBusy, SettingError
from agentkernel.remote.wire import Answered
from agentkernel.storage.files import (
    FULL,
    explain_os_error,
    hold_file_lock,
    read_regular_text,
    write_atomic,
)

NAME = re.compile(r"[0-9a-f]{32}")
OLD_S = 2 * 24 * 3600.0
TAKEN_OVER_S = 30.0
LOCK = "lock"
OWNER = "pid"
"""The file that names the worker which holds the session."""
ANSWERED = TypeAdapter(Answered)


def sessions_folder() -> Path:
    """`$XDG_CACHE_HOME/agentkernel/remote`, below `~/.cache` where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "agentkernel" / "remote"


class SessionFolder:
    """The folder of one session, held by one worker."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add_text(self, digest: str, text: str) -> None:
        """Keep a text. Raises SettingError where it is another one, OutputError."""
        if sha256_text(text) != digest:
            raise SettingError(f"A text came without its hash {digest[:12]}. Next: ask again.")
        with writing(self.path):
            write_atomic(self.path / "texts" / digest, text)

    def lacks(self, digests: Collection[str]) -> tuple[str, ...]:
        """Those of the texts that are not here."""
        return tuple(sorted(x for x in digests if not (self.path / "texts" / x).is_file()))

    def texts(self, digests: Collection[str]) -> dict[str, str]:
        """The texts by their hash."""
        return {item: read_regular_text(self.path / "texts" / item) for item in digests}

    def add_files(self, digest: str, files: Mapping[str, str]) -> Path:
        """A folder of its own for the files of one subject, text by path. Raises OutputError."""
        folder = self.path / "files" / digest
        strange = [
            name
            for name in files
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts
        ]
        if strange:
            raise SettingError(
                f"A file's path leads elsewhere: {strange[0][:80]!r}. Next: ask again."
            )
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(target, text)
        return folder

    def keep(self, answer: Answered) -> None:
        """Keep a finished answer. Raises OutputError."""
        with writing(self.path):
            write_atomic(self._answer(answer.id), answer.model_dump_json())

    def finished(self, question: str) -> Answered | None:
        """The answer to a question that was asked before, where it was finished."""
        with contextlib.suppress(OSError, UnicodeDecodeError, ValidationError):
            return ANSWERED.validate_json(read_regular_text(self._answer(question)))
        return None

    def _answer(self, question: str) -> Path:
        return self.path / "answers" / f"{sha256_text(question)}.json"

    def remove(self) -> None:
        """All of it goes."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failed write below `path` into one line for somebody on another machine."""
    try:
        with explain_os_error(path, _line):
            yield
    except OutputError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError):
            raise
        full = cause.errno in FULL
        raise type(error)(_line(path, cause.strerror or str(cause), full)) from cause


@contextmanager
def open_session(name: str) -> Iterator[SessionFolder]:
    """The folder of the session `name`. A worker that still holds it, as its line was lost and it
    does not know yet, is ended. Raises SettingError, OutputError."""
    if not NAME.fullmatch(name):
        raise SettingError(f"{name!r} names no session. Expected 32 hexadecimal digits.")
    base = sessions_folder()
    path = base / name
    with writing(path):
        for part in ("texts", "files", "answers"):
            (path / part).mkdir(parents=True, exist_ok=True)
        _remove_old(base)
    with _held(path):
        yield SessionFolder(path)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    busy = RunBusy("Another worker holds the session. Next: the same command again, in a minute.")
    lock = path / LOCK
    try:
        with hold_file_lock(lock, busy, 0.0):
            _note_owner(path)
            yield
            return
    except RunBusy as error:
        if error is not busy:
            raise
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(read_regular_text(path / OWNER)), signal.SIGTERM)
    with hold_file_lock(lock, busy, TAKEN_OVER_S):
        _note_owner(path)
        yield


def _note_owner(path: Path) -> None:
    with writing(path):
        write_atomic(path / OWNER, str(os.getpid()))


def _remove_old(base: Path) -> None:
    """Sessions whose end nobody told, and which no worker holds."""
    for path in base.iterdir():
        with contextlib.suppress(OSError, OutputError, RunBusy):
            if NAME.fullmatch(path.name) and time.time() - path.stat().st_mtime > OLD_S:
                with hold_file_lock(path / LOCK, RunBusy("held"), 0.0):
                    shutil.rmtree(path, ignore_errors=True)


def _line(path: Path, problem: str, full: bool) -> str:
    if full:
        return f"No room left on the disk of {str(path.parent)!r}. Next: make room there."
    return (
        f"Cannot write {str(path.parent)!r}: {problem}. Expected a folder that can be written to. "
        "Next: set XDG_CACHE_HOME there."
    )
