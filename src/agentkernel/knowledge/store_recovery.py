"""Recovery of entries from a damaged or lost knowledge store, page by page where needed.

The page layout is that of https://www.sqlite.org/fileformat2.html, sections 1.5 to 2.1.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from agentkernel.knowledge.store_schema import (
    BATCH,
    DATABASE,
    State,
    number_from,
    read_entry,
    writing,
)
from agentkernel.knowledge.store_write import StoreWriter
from agentkernel.storage.files import read_regular_text
from agentkernel.storage.sqlite import (
    UNREADABLE,
    Damage,
    Row,
    damaged_rows,
    reading_damaged,
    transaction,
)

TABLE_LEAF = 0x0D
USUAL_PAGE_BYTES = 4096
FILE_HEADER_BYTES = 100
MOST_BODY_BYTES = 64 * 2**20


class EntryBody(NamedTuple):
    """A row of the table `bodies`, as found: a page that is no longer in use may hold one too."""

    doc: object
    text: object


def entries_on_pages(path: Path) -> Iterator[EntryBody]:
    """Every row of two columns, its own number and a JSON object, in the order of the pages."""
    with path.open("rb") as file:
        pages = _Pages(file)
        number = 1
        while page := pages.read(number):
            start = FILE_HEADER_BYTES if number == 1 else 0
            if len(page) == pages.size and page[start] == TABLE_LEAF:
                for cell in range(int.from_bytes(page[start + 3 : start + 5], "big")):
                    at = start + 8 + 2 * cell
                    body = pages.body(page, int.from_bytes(page[at : at + 2], "big"))
                    if body is not None:
                        yield body
            number += 1


class _Pages:
    """The pages of one file, numbered from 1."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        size = int.from_bytes(file.read(18)[16:18], "big")
        known = size >= 512 and size & (size - 1) == 0
        self.size = size if known else USUAL_PAGE_BYTES

    def read(self, number: int) -> bytes:
        self._file.seek((number - 1) * self.size)
        return self._file.read(self.size)

    def body(self, page: bytes, at: int) -> EntryBody | None:
        """The row of the cell at `at`; None where it is another table's or cut off."""
        try:
            length, at = _varint(page, at)
            doc, at = _varint(page, at)
            if not 0 <= length <= MOST_BODY_BYTES:
                return None
            record = self._payload(page, at, length)
            head, next_type = _varint(record, 0)
            first, next_type = _varint(record, next_type)
            second, next_type = _varint(record, next_type)
        except IndexError:
            return None
        text = record[head:]
        # Serial type 0 stands for the row's number, an odd one from 13 for text of that length.
        whole = next_type == head and first == 0 and second == 13 + 2 * len(text)
        if len(record) != length or not whole or text[:1] != b"{":
            return None
        return EntryBody(doc, text.decode("utf-8", "replace"))

    def _payload(self, page: bytes, at: int, length: int) -> bytes:
        most = self.size - 35
        if length <= most:
            return page[at : at + length]
        least = (self.size - 12) * 32 // 255 - 23
        local = least + (length - least) % (self.size - 4)
        local = local if local <= most else least
        parts = [page[at : at + local]]
        following = page[at + local : at + local + 4]
        missing = length - local
        while missing > 0 and any(following):
            overflow = self.read(int.from_bytes(following, "big"))
            if len(overflow) < self.size:
                break
            following = overflow[:4]
            parts.append(overflow[4 : 4 + missing])
            missing -= len(parts[-1])
        return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, 64 bits with a sign, and the place after it. Raises IndexError
    past the end."""
    value = 0
    for step in range(8):
        byte = data[at + step]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    value = value << 8 | data[at + 8]
    return value - (value >> 63 << 64), at + 9


INDEX_STATES = ("vectors/vectors-*/state.json", "structures/structures.json")
"""Where the indexes beside a knowledge file say how far in it they are."""


def salvage(path: Path, new: Path) -> str:
    """Put each entry of the damaged `path` that can be read into a new file; `4 entries were`.

    First row by row, then what lies on pages that the file's own tree does not lead to any more. An
    entry whose state is lost is current. The progress of imports is not carried over: an import
    that is run again puts what was lost. The numbers of change go on above all that were ever given
    out. Raises OutputError where `new` cannot be written.
    """
    size = path.stat().st_size
    with (
        writing(path),
        contextlib.closing(reading_damaged(path, "bodies")) as old,
    ):
        rows = damaged_rows(old, "bodies", "doc, body", size)
        found = chain((EntryBody(*row) for row in rows), entries_on_pages(path))
        first = max(_next_seq(old), time.time_ns() // 1_000_000)
        with contextlib.closing(DATABASE.connect(new, number_from(first))) as connection:
            docs = _put(connection, found)
            with transaction(connection):
                writer = StoreWriter(connection)
                for row in damaged_rows(old, "entries", ENDED, size):
                    _end(writer, docs, row)
                writer.finish()
            # What stayed in the journal would be lost with the renaming.
            connection.execute("pragma wal_checkpoint(truncate)")
    return f"{len(docs)} entries were"


ENDED = "doc, state, superseded_by, why"


def _put(connection: sqlite3.Connection, found: Iterator[EntryBody]) -> dict[object, str]:
    """Number in the damaged file -> id; the first that can be read of each number."""
    docs: dict[object, str] = {}
    while batch := tuple(islice(found, BATCH)):
        with transaction(connection):
            writer = StoreWriter(connection)
            for doc, body in batch:
                with contextlib.suppress(Damage):
                    if doc not in docs:
                        entry = read_entry(body)
                        writer.put(entry)
                        docs[doc] = entry.id
            writer.finish()
    return docs


def _end(writer: StoreWriter, docs: Mapping[object, str], row: Row) -> None:
    doc, state, superseded_by, why = row
    if doc in docs and state in ("superseded", "removed"):
        ended: State = "superseded" if state == "superseded" else "removed"
        by = str(superseded_by or "")
        writer.end(docs[doc], ended, by if writer.knows(by) else None, str(why))


def _next_seq(old: sqlite3.Connection) -> int:
    """0 where it cannot be read."""
    try:
        row = old.execute("select value from meta where key = 'next_seq'").fetchone()
        return int(row[0])
    except (*UNREADABLE, TypeError, ValueError):
        return 0


def lost_changes(path: Path) -> int:
    """The last change that the indexes saw of a file that is missing or empty; 0: none was lost."""
    with writing(path):
        if path.exists() and path.stat().st_size:
            return 0
        states = [file for pattern in INDEX_STATES for file in path.parent.glob(pattern)]
    return max(map(_change_reached, states), default=0)


def _change_reached(state: Path) -> int:
    """0 where it cannot be read: what is wrong with an index is told when that one is opened."""
    try:
        return int(json.loads(read_regular_text(state))["seq"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
