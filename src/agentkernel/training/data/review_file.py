"""How does a file of reviews grow by whole lines, whatever ends its writer?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from agentkernel.domain.errors import TrainingError
from agentkernel.storage.atomic import explain_write_failure
from agentkernel.storage.disk import lock_open_file, open_append
from agentkernel.training.data.sources import TeacherReview

BEGIN = b'{"kernel_sha256":'
"""How every line that is written here begins."""
KEPT = {"kernel_sha256", "by", "text"}
BUSY_S = 5.0


@dataclass
class ReviewFile:
    """A file that this process alone writes. `known`: the kernels that it has a review of."""

    path: Path
    known: set[str]
    _file: IO[bytes]

    def add(self, review: TeacherReview) -> None:
        """Append a line, on disk when this returns. Raises OutputError."""
        with explain_write_failure(self.path):
            self._file.write(review.model_dump_json(include=KEPT).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self.known.add(review.kernel_sha256)


@contextmanager
def review_file(path: Path) -> Iterator[ReviewFile]:
    """The file at `path`, made where none is; a last line that was spoiled is cut off.

    Raises TrainingError where it holds something else or another process writes it, OutputError.
    """
    busy = TrainingError(
        f"Another process writes {str(path)!r}. Expected to be the only one. Next: wait for it, or "
        "choose another --out."
    )
    with explain_write_failure(path):
        file = open_append(path)
    with file:
        lock_open_file(file, busy, BUSY_S)
        with explain_write_failure(path):
            known = _healed(file, path)
        yield ReviewFile(path, known, file)


def _healed(file: IO[bytes], path: Path) -> set[str]:
    """The kernels that whole lines are about; nothing is cut from a file that is not ours."""
    known: set[str] = set()
    end = 0
    file.seek(0)
    for number, line in enumerate(file, 1):
        try:
            if line.strip():
                known.add(TeacherReview.model_validate_json(line).kernel_sha256)
        except ValidationError as error:
            ours = bool(known) or line.startswith(BEGIN) or BEGIN.startswith(line)
            if file.read(1) or not ours:
                raise TrainingError(
                    f"{str(path)!r} holds no reviews: line {number} is none. Expected a new file, "
                    "or one of this command. Next: choose another --out."
                ) from error
            file.truncate(end)
            return known
        end += len(line)
        if not line.endswith(b"\n"):
            file.write(b"\n")  # the line's end alone was lost
    return known


__all__ = ["ReviewFile", "review_file"]
