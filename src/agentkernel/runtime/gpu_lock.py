"""The lock by which several processes share a GPU.

A benchmark works on several problems at a time, and a run compiles its baselines while it
searches. Judging and warming up hold the lock shared; timing holds it exclusively. The lock is
two files; without `AGENTKERNEL_GATE` in the environment nothing is locked.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

from agentkernel.runtime.stages import stage
from agentkernel.storage.files import open_append

FOLDER = "AGENTKERNEL_GATE"
"""The variable that names the folder of the two files; processes that a run starts inherit it."""

Hold = Literal["working", "timing"]


class GpuLock:
    """This process's place at the gate of `lock_folder`; None: there is nobody else."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: Hold | None = None
        self._files: ExitStack | None = None
        self._thread = 0

    @contextmanager
    def hold(self, kind: Hold) -> Iterator[None]:
        """Inside another hold it changes nothing. Raises RuntimeError for "timing" inside
        "working": two who wait so wait forever."""
        if self._held is not None:
            if kind == "timing" and self._held == "working":
                raise RuntimeError("timing inside working: leave the shared part first")
            yield
            return
        self._enter(kind)
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Inside a hold, be outside of it for a while."""
        before = self._held
        if before is None:
            yield
            return
        self._leave()
        try:
            yield
        finally:
            self._enter(before)

    def is_wanted(self) -> bool:
        """True where this thread works and somebody waits to time: who does stands in the
        turnstile, through which all others only pass."""
        if self._folder is None or self._held != "working":
            return False
        if self._files is None or self._thread != threading.get_ident():
            return False
        with open_append(self._folder / "turnstile") as turnstile:
            try:
                fcntl.flock(turnstile, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _enter(self, kind: Hold) -> None:
        """Through a turnstile to the door: one who waits to time stops later ones who want to
        work, so that it gets its turn (flock alone lets readers starve a writer)."""
        if self._folder is not None:
            announce_use()
            began = time.monotonic()
            with stage("queue for the GPU"), ExitStack() as files:
                door = files.enter_context(open_append(self._folder / "door"))
                with open_append(self._folder / "turnstile") as turnstile:
                    fcntl.flock(turnstile, fcntl.LOCK_EX)
                    fcntl.flock(door, fcntl.LOCK_EX if kind == "timing" else fcntl.LOCK_SH)
                self._files = files.pop_all()
            if has_other_users():
                _waits.append(time.monotonic() - began)
        self._held, self._thread = kind, threading.get_ident()

    def _leave(self) -> None:
        if self._files is not None:
            self._files.close()
        self._files, self._held = None, None


@cache
def _lock_of(folder: str | None) -> GpuLock:
    return GpuLock(None if folder is None else Path(folder))


def _current_lock() -> GpuLock:
    """That of the variable as it stands: a run's own gate comes and goes."""
    return _lock_of(os.environ.get(FOLDER))


_waits: list[float] = []
"""Seconds that this process stood before doors which other runs had closed."""
_claims: list[Callable[[], None]] = []
"""What this process has to wait for before it uses the GPU for the first time."""
_private: set[str] = set()
"""Folders of gates that this process made, which only a run of its own goes through."""


@contextmanager
def private_lock() -> Iterator[None]:
    """A gate for this process and those that it starts meanwhile, unless it has one already."""
    if FOLDER in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="agentkernel-gate-") as folder:
        os.environ[FOLDER] = folder
        _private.add(folder)
        try:
            yield
        finally:
            _private.discard(folder)
            os.environ.pop(FOLDER, None)


def lock_folder() -> Path | None:
    """Where the gate's files are; None where every door is open."""
    named = os.environ.get(FOLDER)
    return None if named is None else Path(named)


def is_enabled() -> bool:
    """True where doors may be closed."""
    return FOLDER in os.environ


def has_other_users() -> bool:
    """True where other runs go through the gate too."""
    return os.environ.get(FOLDER) not in {None, *_private}


def waited_s() -> float:
    """Seconds that this process has waited for other runs."""
    return sum(_waits)


def waited_for(seconds: float) -> None:
    """Another process of this run stood at the gate for `seconds`, and this one waited for it."""
    if has_other_users():
        _waits.append(seconds)


@contextmanager
def before_first_use(claim: Callable[[], None]) -> Iterator[None]:
    """`claim`, which waits for others, runs before this process uses the GPU in the block, and not
    at all where it does not."""
    _claims.append(claim)
    try:
        yield
    finally:
        _claims.clear()


def announce_use() -> None:
    """The GPU is about to be used: who comes through a door has said so."""
    while _claims:
        began = time.monotonic()
        _claims.pop()()
        _waits.append(time.monotonic() - began)


def shared() -> AbstractContextManager[None]:
    """Use the GPU beside others, but not while somebody times."""
    return _current_lock().hold("working")


def exclusive() -> AbstractContextManager[None]:
    """Have the GPU alone."""
    return _current_lock().hold("timing")


def without_gpu() -> AbstractContextManager[None]:
    """Inside `shared`, for a part that needs no GPU (a compiler's): others may time meanwhile."""
    return _current_lock().pause()


def is_wanted() -> bool:
    """True where this thread is inside `shared` and somebody waits to time."""
    return _current_lock().is_wanted()
