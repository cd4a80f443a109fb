"""What is damaged of an index, and what its disk refuses."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from agentkernel.domain.errors import one_line
from agentkernel.storage.database import UNREADABLE, is_damage, reading
from agentkernel.storage.disk import explain_os_error, room_failure


def database_damage(database: Path) -> str | None:
    """What SQLite says against the file; asked first, because Chroma aborts on some of it."""
    if not database.is_file():
        return "its database is missing"
    try:
        with reading(database) as connection:
            answer = connection.execute("PRAGMA quick_check").fetchone()
    except UNREADABLE as error:
        if not is_damage(error):
            raise
        return one_line(error, 120)
    return None if answer == ("ok",) else one_line(answer, 120)


def keeping(what: str, folder: Path) -> AbstractContextManager[None]:
    """Turn a failed write of the index `what` in `folder` into one clear OutputError."""

    def line(path: Path, problem: str, full: bool) -> str:
        return (
            f"Cannot keep the {what} in {str(path)!r}: {problem}. Expected a folder that can be "
            f"written. Next: {'make room' if full else 'choose another folder, or make room'}."
        )

    return explain_os_error(folder, line)


def refuse_failing_disk(folder: Path) -> None:
    """Raise the OSError of a disk that is full or read-only: what lies there is not damaged."""
    failure = room_failure(folder)
    if failure is not None:
        raise failure
