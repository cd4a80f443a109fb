"""How do entries travel from one knowledge file to another, as JSON lines?"""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, cast

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.knowledge import Entry
from agentkernel.errors import KnowledgeError, OutputError, one_line
from agentkernel.knowledge.truth_types import Imported, Put

EXPORT_FORMAT = 1
LONGEST_LINE = 16 * 2**20
"""Bytes; a longer line is counted as broken, so that no file can fill the memory."""
NAMED_BROKEN = 20
"""How many broken lines are named; all are counted."""
PutAll = Callable[[Iterable[Entry]], Put]


class Header(Frozen):
    """The first line of an export."""

    agentkernel_knowledge: int
    """The format's number."""
    entries: int
    kinds: dict[str, int]


class _HeaderLike(Frozen):
    """What tells a header of any format, a newer one too."""

    model_config = Frozen.model_config | {"extra": "ignore"}
    agentkernel_knowledge: int
    entries: int | None = None


def export_entries(entries: Iterable[Entry], path: Path) -> int:
    """Write `entries` a line each under a header that counts them; gzip where `path` ends in ".gz".

    `path` is replaced when all is written, or not at all. Answers how many there are. Raises
    OutputError where it cannot be written.
    """
    try:
        with tempfile.TemporaryFile(dir=path.parent) as lines:
            kinds: dict[str, int] = {}
            for entry in entries:
                kinds[entry.kind] = kinds.get(entry.kind, 0) + 1
                lines.write(entry.model_dump_json().encode() + b"\n")
            total = sum(kinds.values())
            header = Header(agentkernel_knowledge=EXPORT_FORMAT, entries=total, kinds=kinds)
            lines.seek(0)
            _write(path, header.model_dump_json().encode() + b"\n", cast("BinaryIO", lines))
    except OSError as error:
        raise OutputError(
            f"Cannot export to {str(path)!r}: {error.strerror or error}. Expected a file in a "
            "folder that can be written, with room left. Next: name another one."
        ) from error
    return total


def _write(path: Path, header: bytes, lines: BinaryIO) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _opened(draft, "wb", path.suffix == ".gz") as out:
            out.write(header)
            while block := lines.read(2**20):
                out.write(block)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def import_entries(put: PutAll, path: Path) -> Imported:
    """Hand every entry of an export to `put`, as a stream; a broken line is counted and named.

    Raises KnowledgeError for a file that cannot be opened or has a newer format; nothing of it was
    put then. What `put` raises goes through, with all batches before it saved.
    """
    reading = _Reading(path)
    try:
        with _opened(path, "rb", path.suffix == ".gz") as file:
            done = put(reading.entries(file))
    except OSError as error:
        raise KnowledgeError(
            f"Cannot import {str(path)!r}: {error.strerror or error}. Expected an export of "
            "agentkernel. Next: check the path."
        ) from error
    return Imported(done, reading.expected, reading.broken_count, tuple(reading.broken))


class _Reading:
    """What an import has met so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.expected: int | None = None
        self.broken_count = 0
        self.broken: list[str] = []

    def entries(self, file: BinaryIO) -> Iterator[Entry]:
        """The entries of all lines that are whole."""
        number = 0
        for number, line in enumerate(self._lines(file), start=1):
            if not line.strip() or (number == 1 and self._header(line)):
                continue
            try:
                yield Entry.model_validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(str(part) for part in first["loc"])
                self._skip(number, f"{where}: {first['msg']}" if where else first["msg"])

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            try:
                line = file.readline(LONGEST_LINE)
                whole = line
                while len(whole) == LONGEST_LINE and not whole.endswith(b"\n"):
                    whole = file.readline(LONGEST_LINE)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                self._skip(number, f"the file breaks off here ({one_line(error, 80)})")
                return
            if not line:
                return
            if whole is not line:
                self._skip(number, f"longer than {LONGEST_LINE} bytes")
                line = b"\n"
            yield line

    def _header(self, line: bytes) -> bool:
        try:
            header = _HeaderLike.model_validate_json(line)
        except ValidationError:
            return False
        if header.agentkernel_knowledge > EXPORT_FORMAT:
            raise KnowledgeError(
                f"The export {str(self.path)!r} has format {header.agentkernel_knowledge}. "
                f"Expected {EXPORT_FORMAT} or older. Next: upgrade agentkernel."
            )
        self.expected = header.entries
        return True

    def _skip(self, number: int, why: str) -> None:
        self.broken_count += 1
        if len(self.broken) < NAMED_BROKEN:
            self.broken.append(f"line {number}: {one_line(why, 120)}")


def _opened(path: Path, mode: Literal["rb", "wb"], packed: bool) -> BinaryIO:
    if packed:
        return cast("BinaryIO", gzip.open(path, mode))
    return path.open(mode)
