"""Recovery of entries from a damaged or lost knowledge store, page by page where needed.

The page layout is that of https://www.sqlite.org/fileformat2.html, sections 1.5 to 2.1.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from agentkernel.domain.knowledge import Entry
from agentkernel.knowledge.store_schema import BATCH, State, connect, read_entry, writing
from agentkernel.knowledge.store_write import StoreWriter
from agentkernel.storage.files import read_regular_text
from agentkernel.storage.sqlite import (
    UNREADABLE,
    Damage,
    new_of,
    reading_damaged,
    replace_damaged,
    transaction,
)

TABLE_LEAF = 0x0D
USUAL_PAGE_BYTES = 4096
FILE_HEADER_BYTES = 100
MOST_BODY_BYTES = 64 * 2**20


class EntryBody(NamedTuple):
    """A row of the table `bodies`, as found: a page that is no longer in use may hold one too."""

    doc: int
    text: str


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


MOST_DOCS = 2_000_000
"""How many numbers are tried where the file's own count cannot be read."""
SMALLEST_ENTRY_BYTES = 150
"""Of an entry's JSON: it bounds how many can be in a file."""
INDEX_STATES = ("vectors/vectors-*/state.json", "structures/structures.json")
"""Where the indexes beside a knowledge file say how far in it they are."""


class EntryEnd(NamedTuple):
    """Why an entry is not current."""

    id: str
    state: State
    superseded_by: str
    why: str


class SavedEntry(NamedTuple):
    """One entry that was read."""

    entry: Entry
    ended: EntryEnd | None


class Recovered(NamedTuple):
    """How many entries are in the new file, and where the old one lies."""

    entries: int
    aside: Path


def recover(path: Path) -> Recovered:
    """Replace a damaged file, which nobody else uses, by a new one with all that can be read.

    The progress of imports is not carried over: an import that is run again puts what was lost.
    The numbers of change go on above all that were ever given out. Raises OutputError; a kill or a
    full disk at any moment leaves the old file or the new one, whole.
    """
    new = new_of(path)
    with writing(path), DamagedStore(path) as remains:
        first = max(remains.last_number("next_seq") or 0, time.time_ns() // 1_000_000)
        with contextlib.closing(connect(new, first)) as connection:
            entries = _save(connection, remains.entries())
    aside = replace_damaged(path, writing)
    return Recovered(entries, aside)


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


def _save(connection: sqlite3.Connection, found: Iterator[SavedEntry]) -> int:
    """Put all of them, then end those that were ended. Answers how many there are."""
    total = 0
    ended: list[EntryEnd] = []
    while batch := tuple(islice(found, BATCH)):
        with transaction(connection):
            writer = StoreWriter(connection)
            total += sum(writer.put(entry).added for entry, _ in batch)
            writer.finish()
        ended.extend(end for _, end in batch if end is not None)
    with transaction(connection):
        writer = StoreWriter(connection)
        for end in ended:
            by = end.superseded_by if writer.knows(end.superseded_by) else None
            writer.end(end.id, end.state, by, end.why)
        writer.finish()
    # What stayed in the journal would be lost with the renaming.
    connection.execute("pragma wal_checkpoint(truncate)")
    return total


class DamagedStore:
    """A damaged file, open for reading only. Every row is asked for by its own number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = reading_damaged(path, "bodies")

    def __enter__(self) -> DamagedStore:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def entries(self) -> Iterator[SavedEntry]:
        """All that can be read; a lost state is current.

        First row by row, in the order in which they first came, then what lies on pages that the
        file's own tree does not lead to any more.
        """
        seen: set[int] = set()
        for doc in range(1, self._last_doc() + 1):
            row = self._row("select body from bodies where doc = ?", doc)
            if row is not None:
                yield from self._saved(doc, row[0], seen)
        for body in entries_on_pages(self.path):
            if body.doc not in seen:
                yield from self._saved(body.doc, body.text, seen)

    def _saved(self, doc: int, body: object, seen: set[int]) -> Iterator[SavedEntry]:
        with contextlib.suppress(Damage):
            entry = read_entry(body)
            seen.add(doc)
            yield SavedEntry(entry, self._ended(doc, entry.id))

    def _ended(self, doc: int, entry_id: str) -> EntryEnd | None:
        row = self._row("select state, superseded_by, why from entries where doc = ?", doc)
        if row is None or row[0] not in ("superseded", "removed"):
            return None
        state: State = "superseded" if row[0] == "superseded" else "removed"
        return EntryEnd(entry_id, state, str(row[1] or ""), str(row[2]))

    def last_number(self, key: str) -> int | None:
        """A number of the file's head; None where it cannot be read."""
        row = self._row("select value from meta where key = ?", key)
        try:
            return None if row is None else int(str(row[0]))
        except ValueError:
            return None

    def _last_doc(self) -> int:
        known = self.last_number("last_doc")
        most = min(MOST_DOCS, self.path.stat().st_size // SMALLEST_ENTRY_BYTES)
        return known if known is not None else most

    def _row(self, statement: str, value: int | str) -> tuple[object, ...] | None:
        if self._connection is None:
            return None
        try:
            row = self._connection.execute(statement, (value,)).fetchone()
        except UNREADABLE:
            return None
        return None if row is None else tuple(row)
