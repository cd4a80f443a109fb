"""What is in the knowledge file, how is it opened, and how is its failure told?"""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path

from pydantic import ValidationError

from agentkernel.domain.errors import KnowledgeError, one_line
from agentkernel.domain.knowledge import Entry
from agentkernel.storage import database
from agentkernel.storage.database import Damage, DatabaseMessages, text_of, transaction

TOLD = DatabaseMessages("knowledge in", "folder", "another folder", KnowledgeError)
writing, using = TOLD.writing, TOLD.using
FILE_NAME = "knowledge.sqlite"
FORMAT = 1
HIGHEST_FORMAT = 1000
"""A higher number was never given out: the file's head is damaged."""
BATCH = 500
"""Entries a transaction."""
BUSY_S = 60.0
"""How long a writer waits for another one; a batch holds the file for under a second."""
CACHE_KIB = 65_536
"""SQLite's page cache: ranking a match is three times slower with the default of 2 MB."""
CHECKED_BYTES = 32 * 2**20
"""A file up to this size is read through whenever it is opened (about 0.1 s)."""

SCHEMA = (
    "create table meta (key text primary key, value text not null) without rowid",
    """create table entries (
        doc integer primary key, id text not null unique, seq integer not null unique,
        state text not null check (state in ('current', 'superseded', 'removed')),
        kind text not null, licence text not null, verified text not null, source text not null,
        architectures text not null, topic text not null, sha256 text not null,
        superseded_by text references entries (id), why text not null default '',
        ended text not null default '')""",
    "create index entries_by_kind on entries (state, kind)",
    "create index entries_by_topic on entries (topic) where topic <> ''",
    """create table bodies (
        doc integer primary key references entries (doc), body text not null)""",
    """create table history (
        number integer primary key, id text not null references entries (id),
        body text not null, why text not null, ended text not null)""",
    """create table imports (
        source text primary key, position text not null, state text not null) without rowid""",
    "create table terms (term text primary key, documents integer not null) without rowid",
    "create virtual table words using fts5 (title, names, text, content='', tokenize='ascii')",
)
"""`entries` holds what is filtered by, in short rows; the JSON of an entry is in `bodies`; `words`
is fed with `truth_words.words_of` only, and `terms` counts the documents of each word."""


TABLES = {"meta", "entries", "bodies", "history", "imports", "terms", "words"}


def connect(path: Path, first_seq: int = 1) -> sqlite3.Connection:
    """Open `path`, or make it complete or not at all. Only one process may do so at a time.

    `first_seq` is the number of the first change in a new file. Raises one of `UNREADABLE` for a
    damaged file, KnowledgeError for a newer format and OutputError where it cannot be written.
    """
    with writing(path):
        connection = database.connect(path, timeout=BUSY_S)
    connection.text_factory = text_of
    try:
        with writing(path):
            try:
                _prepare(connection, path, first_seq)
            except sqlite3.OperationalError as error:
                if "file format" in str(error):
                    raise Damage(str(error)) from error
                raise
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, first_seq: int) -> None:
    found = int(connection.execute("pragma user_version").fetchone()[0])
    if not 0 <= found <= HIGHEST_FORMAT:
        raise Damage(f"format {found}")
    if found > FORMAT:
        raise KnowledgeError(
            f"The knowledge in {str(path)!r} has format {found}. Expected {FORMAT} or older. "
            "Next: upgrade agentkernel, or name another folder."
        )
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute("pragma foreign_keys = on")
    connection.execute(f"pragma cache_size = -{CACHE_KIB}")
    if found == FORMAT:
        return
    if connection.execute("select count(*) from sqlite_master").fetchone()[0]:
        raise Damage("tables of another program")
    with transaction(connection):
        for statement in SCHEMA:
            connection.execute(statement)
        meta = {"identity": uuid.uuid4().hex, "next_seq": str(first_seq), "last_doc": "0"}
        connection.executemany("insert into meta values (?, ?)", meta.items())
        connection.execute(f"pragma user_version = {FORMAT}")


def check(connection: sqlite3.Connection, path: Path, whole: bool) -> None:
    """Read what every use needs, and all of a small file or where `whole` is asked for.

    Raises one of `UNREADABLE` for damage.
    """
    tables = {row[0] for row in connection.execute("select name from sqlite_master")}
    if not tables >= TABLES:
        raise Damage(f"without {', '.join(sorted(TABLES - tables))}")
    meta = dict(connection.execute("select key, value from meta"))
    if not {"identity", "next_seq", "last_doc"} <= meta.keys():
        raise Damage("its head is incomplete")
    connection.execute("select max(seq) from entries").fetchone()
    connection.execute("select max(doc) from bodies").fetchone()
    connection.execute("select 1 from words where words match 'x' limit 1").fetchone()
    if whole or path.stat().st_size <= CHECKED_BYTES:
        answer = connection.execute("pragma quick_check(1)").fetchone()
        if answer != ("ok",):
            raise Damage(one_line(answer[0], 120))
        bare = "select id from entries where doc not in (select doc from bodies) limit 1"
        if connection.execute(bare).fetchone() is not None:
            raise Damage("an entry has no body")


def read_entry(body: object) -> Entry:
    """The entry of a row. Raises Damage where it is none."""
    try:
        return Entry.model_validate_json(str(body))
    except ValidationError as error:
        raise Damage("an entry's JSON is broken") from error
