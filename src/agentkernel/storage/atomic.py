"""How is a file written so that a kill or a full disk never leaves half of it?"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from agentkernel.domain.errors import AgentKernelError
from agentkernel.storage.disk import (
    explain_os_error,
    lock_open_file,
    open_append,
    open_new,
    refuse_strange,
)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write to a neighbour, flush it to disk, then rename it over `path`. Raises OutputError."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with explain_write_failure(path):
        refuse_strange(path)
        try:
            with open_new(temporary) as file:
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


@contextlib.contextmanager
def hold_file_lock(lock: Path, busy: AgentKernelError, wait_s: float) -> Iterator[None]:
    """Hold the file `lock`, made where none is, which stays. Raises `busy` where another process
    still holds it after `wait_s`, OutputError."""
    with explain_write_failure(lock):
        file = open_append(lock)
    with file:
        lock_open_file(file, busy, wait_s)
        yield


def explain_write_failure(path: Path) -> contextlib.AbstractContextManager[None]:
    """Turn a failed write to `path` (file, folder or database) into one clear OutputError."""
    return explain_os_error(path, _explain)


def _explain(path: Path, problem: str, full: bool) -> str:
    if full:
        return (
            f"No room left on the disk of {str(path)!r}. What was finished before is saved there. "
            "Next: make room, then 'agentkernel resume' goes on from it."
        )
    return (
        f"Cannot write {str(path)!r}: {problem}. Expected a folder that can be written to. "
        "Next: choose another with --runs or --out."
    )


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
