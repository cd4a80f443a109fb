"""Store of all entries in one SQLite file that survives kills, full disks and damage."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from agentkernel.domain.knowledge import Entry, EntryKind, Filters
from agentkernel.knowledge import store_schema, transfer
from agentkernel.knowledge.store_recovery import lost_changes, salvage
from agentkernel.knowledge.store_schema import (
    BATCH,
    CACHE_KIB,
    DATABASE,
    FILE_NAME,
    Change,
    Imported,
    LexicalHit,
    OldVersion,
    OriginState,
    Progress,
    PutCounts,
    Removed,
    Say,
    Settled,
    State,
    Stats,
    number_from,
    read_entry,
    using,
    where_filters,
    writing,
)
from agentkernel.knowledge.store_write import StoreWriter
from agentkernel.storage.files import data_folder, expanded
from agentkernel.storage.sqlite import transaction

PAGE = 200
"""Entries that are read at once."""
SHOWN_SOURCES = 20
Row = tuple[object, ...]


class KnowledgeStore:
    """An open knowledge file. Any number of processes and threads may read and write at once.

    A failed write raises OutputError and leaves what was there before; damage that is met on the
    way raises KnowledgeError, and the next `open_knowledge_store` saves what can be read.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, in_use: IO[bytes]) -> None:
        self.path = path
        self._db = connection
        self._in_use = in_use
        self._lock = threading.RLock()

    def __enter__(self) -> KnowledgeStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()
            self._in_use.close()

    @property
    def identity(self) -> str:
        """Another one: another file, and an index over the old one has to be made anew."""
        return str(self._rows("select value from meta where key = 'identity'")[0][0])

    @property
    def last_seq(self) -> int:
        """The number of the last change; 0 before the first one."""
        return _int(self._rows("select value from meta where key = 'next_seq'")[0][0]) - 1

    def put(self, entries: Iterable[Entry], progress: Progress | None = None) -> PutCounts:
        """Take in `entries`, `BATCH` a transaction, reading them one batch at a time.

        The same id with the same content (`created` apart) changes nothing, also where it is
        superseded; with another content it becomes the current version, and the old one goes
        into the history. `progress` is written in the transaction of the last batch, or after it.
        """
        source = iter(entries)
        total = PutCounts()
        while batch := tuple(islice(source, BATCH)):
            last = len(batch) < BATCH
            with self._writing() as writer:
                done = PutCounts()
                for entry in batch:
                    done = done.plus(writer.put(entry))
                if last and progress is not None:
                    writer.progress(progress)
                    progress = None
            total = total.plus(done)
        if progress is not None:
            with self._writing() as writer:
                writer.progress(progress)
        return total

    def settle(self, entry: Entry) -> Settled:
        """Put an experience and leave one of those that answer the same question current.

        The same question: the same problem text (its shapes are in it), architectures and GPU. Of
        two, the more trusted one wins (`store_write.trust_in`: measured here before imported). Of
        equals the newer one (by `created`; the one that is put where that is equal) wins if it was
        verified with another Triton version or took less time; else the older one stays. Losers
        are superseded by the winner, never deleted. Without a problem or a gain it is only put.

        Raises KnowledgeError for figures that cannot be.
        """
        with self._writing() as writer:
            return writer.settle(entry)

    def supersede(self, old_id: str, new_id: str, why: str) -> bool:
        """Let `new_id` stand for `old_id`, which is found no more. False: it was so already.

        Raises KnowledgeError where `old_id` is unknown or `new_id` is not current.
        """
        with self._writing() as writer:
            return writer.supersede(old_id, new_id, why)

    def remove(self, entry_id: str, why: str) -> bool:
        """Let an entry be found no more, with nothing in its place. False: it was not current."""
        with self._writing() as writer:
            return writer.end(entry_id, "removed", None, why)

    def get(self, entry_id: str, *, superseded: bool = False) -> Entry | None:
        """The current entry of that id, or, where `superseded` is set, also one that was ended."""
        states = "" if superseded else "and state = 'current'"
        rows = self._rows(
            f"select body from bodies join entries using (doc) where id = ? {states}", entry_id
        )
        return self._entry(rows[0][0]) if rows else None

    def history(self, entry_id: str) -> tuple[OldVersion, ...]:
        """The versions of an entry that are found no more, oldest first."""
        rows = self._rows(
            """select body, why, null, ended, number from history where id = ?
               union all select body, why, superseded_by, ended, 9e18 from entries
               join bodies using (doc) where id = ? and state <> 'current' order by 5""",
            entry_id,
            entry_id,
        )
        return tuple(
            OldVersion(self._entry(body), str(why), None if by is None else str(by), str(ended))
            for body, why, by, ended, _ in rows
        )

    def entries(self, after_seq: int = 0, limit: int | None = None) -> Iterator[Change]:
        """Every id that changed after `after_seq`, in its present state, in order of change.

        An id that changes while this runs comes again with its new number.
        """
        left = limit
        while left is None or left > 0:
            page = PAGE if left is None else min(PAGE, left)
            rows = self._rows(
                """select seq, id, case state when 'current' then body end
                   from entries join bodies using (doc) where seq > ? order by seq limit ?""",
                after_seq,
                page,
            )
            for seq, entry_id, body in rows:
                after_seq = _int(seq)
                yield Change(
                    after_seq, Removed(str(entry_id)) if body is None else self._entry(body)
                )
            if len(rows) < page:
                return
            left = None if left is None else left - page

    def select(self, filters: Filters) -> Iterator[Entry]:
        """The current entries that `filters` let through, in the order in which they first came."""
        where, values = where_filters(filters)
        after = 0
        while True:
            rows = self._rows(
                f"""select e.doc, body from entries e join bodies b on b.doc = e.doc
                    where e.doc > ? and e.state = 'current' {where} order by e.doc limit ?""",
                after,
                *values,
                PAGE,
            )
            for doc, body in rows:
                after = _int(doc)
                yield self._entry(body)
            if len(rows) < PAGE:
                return

    def count(self, kind: EntryKind | None = None, state: State = "current") -> int:
        """How many entries there are in `state`, of one kind or of all."""
        where, values = ("and kind = ?", (kind,)) if kind is not None else ("", ())
        rows = self._rows(f"select count(*) from entries where state = ? {where}", state, *values)
        return _int(rows[0][0])

    def held(self, origins: Iterable[str]) -> OriginState:
        """The entries whose ids begin with one of `origins` (`notes/`)."""
        ranges = [(origin, origin[:-1] + chr(ord(origin[-1]) + 1)) for origin in origins]
        where = " or ".join("id >= ? and id < ?" for _ in ranges)
        rows = self._rows(
            f"select total(state = 'current'), coalesce(max(seq), 0) from entries where {where}",
            *(bound for pair in ranges for bound in pair),
        )
        current, last_seq = rows[0]
        return OriginState(int(float(str(current))), _int(last_seq))

    def stats(self) -> Stats:
        """What there is, by kind, licence, verification and source."""
        states = {str(name): _int(n) for name, n in self._rows(_grouped("state", "true"))}
        by = {
            column: {str(name): _int(n) for name, n in self._rows(_grouped(column))}
            for column in ("kind", "licence", "verified", "source")
        }
        return Stats(
            current=states.get("current", 0),
            superseded=states.get("superseded", 0),
            removed=states.get("removed", 0),
            versions=_int(self._rows("select count(*) from history")[0][0]),
            by_kind=by["kind"],
            by_licence=by["licence"],
            by_verified=by["verified"],
            by_source=dict(islice(by["source"].items(), SHOWN_SOURCES)),
            file_bytes=self.path.stat().st_size,
        )

    def lexical(
        self, words: str, limit: int = 60, filters: Filters | None = None
    ) -> list[LexicalHit]:
        """The current entries that share rare words with `words` (any text), best first."""
        with self._lock, using(self.path):
            return store_schema.search(self._db, words, limit, filters or Filters())

    def progress(self, source: str) -> Progress | None:
        """How far the import of `source` has come; None: it was never begun."""
        rows = self._rows("select source, position, state from imports where source = ?", source)
        if not rows:
            return None
        name, position, state = rows[0]
        return Progress(str(name), _int(position), str(state))

    def export(self, path: Path, filters: Filters | None = None) -> int:
        """Write the current entries as JSON lines; see `transfer.export_entries`."""
        return transfer.export_entries(self.select(filters or Filters()), path)

    def import_(self, path: Path) -> Imported:
        """Merge an export by id and content, as `put` does; see `transfer.import_entries`."""
        return transfer.import_entries(self.put, path)

    def _rows(self, statement: str, *values: object) -> list[Row]:
        with self._lock, using(self.path):
            return self._db.execute(statement, values).fetchall()

    def _entry(self, body: object) -> Entry:
        with using(self.path):
            return read_entry(body)

    @contextmanager
    def _writing(self) -> Iterator[StoreWriter]:
        with self._lock, using(self.path), transaction(self._db):
            writer = StoreWriter(self._db)
            yield writer
            writer.finish()


def default_folder() -> Path:
    """The user's own knowledge folder. Raises SettingError for a user without a home."""
    return data_folder() / "knowledge"


def folder_of(index: str | None) -> Path:
    """The folder that the setting `knowledge.index` names, else the user's own. Raises
    SettingError for a user without a home."""
    return expanded(index) if index else default_folder()


def open_knowledge_store(folder: Path, say: Say | None = None) -> KnowledgeStore:
    """Open `folder`/knowledge.sqlite, making it where it is missing; close it or use `with`.

    A damaged file is set aside and what can be read goes into a new one, whose `identity` and
    numbers of change are others; `say` gets one line. It gets one too where the file is gone though
    its indexes still stand: the numbers of the new one go on after theirs. Raises OutputError where
    the folder cannot be written and KnowledgeError for a newer format, or damage while another
    process uses the file.
    """
    path = folder / FILE_NAME
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
    with DATABASE.opening(path):
        lost = lost_changes(path)
        connection, in_use, mended = DATABASE.open(path, salvage, number_from(lost + 1))
    connection.execute(f"pragma cache_size = -{CACHE_KIB}")
    if lost:
        mended = (
            f"The knowledge file {str(path)!r} is gone, though its indexes saw {lost} changes: "
            "a new one is begun without the entries. Next: 'agentkernel knowledge import FILE' "
            "with an export of yours brings them back."
        )
    if mended is not None and say is not None:
        say(mended)
    return KnowledgeStore(path, connection, in_use)


def _int(value: object) -> int:
    return int(str(value))


def _grouped(column: str, where: str = "state = 'current'") -> str:
    return (
        f"select {column}, count(*) from entries where {where} "
        f"group by {column} order by count(*) desc, {column}"
    )
