"""Export and import of entries as JSON lines, with the rules for what may come in."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import secrets
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, cast

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import KnowledgeError, OutputError, one_line
from agentkernel.domain.knowledge import Entry
from agentkernel.domain.plan import FOREIGN
from agentkernel.knowledge.documents import ORIGINS
from agentkernel.knowledge.store_schema import Imported, PutCounts
from agentkernel.knowledge.store_write import implausible_figures
from agentkernel.storage.files import open_new, open_regular, refuse_strange

EXPORT_FORMAT = 1
LONGEST_LINE = 16 * 2**20
"""Bytes; a longer line is counted as broken, so that no file can fill the memory."""
NAMED_BROKEN = 20
"""How many broken lines are named; all are counted."""
NO_LICENCE = "not stated"
ADDRESS = re.compile(r"(?:(?!\.\.?(?:/|\Z))[A-Za-z0-9._-]{1,120}(?:/(?=[^/])|\Z)){1,4}")
"""An id that may come in: up to four parts between slashes, none of them a step in a file tree."""
GZIP = b"\x1f\x8b"
"""How a file begins that gzip wrote (RFC 1952, section 2.3.1)."""
PutAll = Callable[[Iterable[Entry]], PutCounts]
Get = Callable[[str], Entry | None]
"""The entry of that id, also one that was ended."""


class Refusal(NamedTuple):
    """An entry of an export that is left out, and why, in a few words."""

    id: str
    why: str


class ImportCounts(NamedTuple):
    """What became of an export."""

    found: Imported
    refused: tuple[Refusal, ...]

    @property
    def missing(self) -> int:
        """Entries that the header counts and that no line of the file stands for."""
        put = self.found.put
        met = put.added + put.changed + put.same + len(self.refused) + self.found.broken_count
        return max(0, (self.found.expected or 0) - met)


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
    refuse_strange(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with _created(draft, packed=path.suffix == ".gz") as out:
            out.write(header)
            while block := lines.read(2**20):
                out.write(block)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def import_entries(put: PutAll, path: Path) -> Imported:
    """Hand every entry of an export to `put`, as a stream; a broken line is counted and named.

    gzip is told by the content. Raises KnowledgeError for a file that cannot be opened, has a newer
    format or no entry where some were to be expected; nothing of it was put then. What `put` raises
    goes through, with all batches before it saved.
    """
    reading = _Reading(path)
    try:
        with _opened(path) as file:
            done = put(reading.entries(file))
    except OSError as error:
        raise KnowledgeError(
            f"Cannot import {str(path)!r}: {error.strerror or error}. Expected an export of "
            "agentkernel. Next: check the path."
        ) from error
    if not reading.whole and reading.expected != 0:
        says = "no header" if reading.expected is None else f"a header of {reading.expected}"
        raise KnowledgeError(
            f"No entry in {str(path)!r}: {says}, {reading.broken_count} broken lines. Expected an "
            "export of agentkernel. Next: name a file that 'agentkernel knowledge export' wrote."
        )
    return Imported(done, reading.expected, reading.broken_count, tuple(reading.broken))


class ImportFilter:
    """Which entries of one export come in, and what do they say of themselves then?"""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._met: set[str] = set()
        self.refused: list[Refusal] = []

    def admitted(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Those that may come in, marked as imported; the others are kept in `refused`.

        What is here already passes as it is here, so an own export brought back changes nothing.
        Nothing foreign takes the place of what was made here or what the package brings.
        """
        for entry in entries:
            known = self._get(entry.id) if ADDRESS.fullmatch(entry.id) else None
            foreign = mark_imported(entry)
            here = known is not None and _same(mark_imported(known), foreign)
            why = "" if here else self._refusal(entry, known)
            if entry.id in self._met:
                why = "their ids came before in this file"
            if why:
                self.refused.append(Refusal(entry.id, why))
                continue
            self._met.add(entry.id)
            yield known if here and known is not None else foreign

    def _refusal(self, entry: Entry, known: Entry | None) -> str:
        if not ADDRESS.fullmatch(entry.id):
            return "their ids are no addresses"
        if entry.id.lower().startswith(ORIGINS):
            return "their ids are the package's own"
        if known is not None and not known.source.startswith(FOREIGN):
            return "other entries with their ids were made here"
        return "their figures of a run cannot be" if implausible_figures(entry) else ""


def mark_imported(entry: Entry) -> Entry:
    """`entry` with a source that says that it was imported, and with a licence, if only in name."""
    foreign = entry.source.startswith(FOREIGN)
    source = entry.source if foreign else f"{FOREIGN}{entry.source}"
    licence = entry.licence.strip() or NO_LICENCE
    return entry.evolve(source=source, licence=licence)


def _same(one: Entry, other: Entry) -> bool:
    """Whether they differ in nothing but when they were made."""
    return one == other.evolve(created=one.created)


class _Reading:
    """What an import has met so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.expected: int | None = None
        self.whole = 0
        self.broken_count = 0
        self.broken: list[str] = []

    def entries(self, file: BinaryIO) -> Iterator[Entry]:
        """The entries of all lines that are whole."""
        number = 0
        for number, line in enumerate(self._lines(file), start=1):
            if not line.strip() or (number == 1 and self._header(line)):
                continue
            try:
                entry = Entry.model_validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(str(part) for part in first["loc"])
                self._skip(number, f"{where}: {first['msg']}" if where else first["msg"])
                continue
            self.whole += 1
            yield entry

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


@contextlib.contextmanager
def _created(path: Path, *, packed: bool) -> Iterator[IO[bytes]]:
    with open_new(path) as file:
        if not packed:
            yield file
            return
        with gzip.GzipFile("", "wb", fileobj=file) as lines:
            yield cast("IO[bytes]", lines)


class _Unpacked(gzip.GzipFile):
    """Closes the packed file too."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()


def _opened(path: Path) -> BinaryIO:
    file = cast("BinaryIO", open_regular(path, linked=True))
    packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    return cast("BinaryIO", _Unpacked(file)) if packed else file
