"""SQLite file of the library: schema, migrations, opening, and salvage of a damaged file.

Several processes use the file at once. A damaged one is replaced by a new one that holds each
row that can still be read.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from agentkernel.domain.errors import LibraryError
from agentkernel.domain.formatting import count
from agentkernel.storage.files import data_folder, refuse_strange
from agentkernel.storage.sqlite import (
    Damage,
    Database,
    OpenedDatabase,
    copy_rows,
    reading_damaged,
    transaction,
)

MAGIC = b"SQLite format 3\0"
HEAD_BYTES = 100
"""SQLite's file header (https://sqlite.org/fileformat2.html, 1.3): user_version at 60,
application_id at 68, both big-endian."""

VERSION_1 = (
    "create table certificates (sha256 text not null unique, value text not null)",
    """create table kernels (
        id integer primary key, sha256 text not null, signature text not null, gpu text not null,
        torch text not null, triton text not null, precision text not null, dtype text not null,
        problem text not null, source text not null, parameters text not null,
        certificate text not null references certificates (sha256),
        signer text not null, judge_sha256 text not null, run text not null, created text not null,
        basis text not null, speedup real, speedup_low real, time_us real, baseline_us real,
        verified text not null, withdrawn text, withdrawn_at text not null default '',
        unique (sha256, signature, gpu, torch, triton, precision, dtype))""",
    """create index kernels_by_key
        on kernels (signature, gpu, torch, triton, precision, dtype, created)""",
    """create table nights (
        id text not null unique, zoo text not null, started text not null, finished text,
        green integer not null, basis text not null, value text not null)""",
    "create index nights_by_zoo on nights (zoo, started)",
    """create table night_models (
        night text not null references nights (id), number integer not null, name text not null,
        vs_eager real, vs_compile real, estimated real, value text not null,
        unique (night, number))""",
    """create table night_regions (
        night text not null references nights (id), number integer not null,
        signature text not null, status text not null, value text not null,
        unique (night, number))""",
    """create table jobs (
        key text not null unique, kind text not null, value text not null,
        started text not null, finished text not null, worker text not null)""",
)
VERSION_2 = (
    """create table measurements (
        id integer primary key, sha256 text not null, signature text not null, gpu text not null,
        night text not null default '', taken text not null, time_us real, baseline_us real,
        speedup real, speedup_low real)""",
    "create index measurements_by_kernel on measurements (sha256, taken)",
    """insert into measurements
        (sha256, signature, gpu, taken, time_us, baseline_us, speedup, speedup_low)
        select sha256, signature, gpu, created, time_us, baseline_us, speedup, speedup_low
        from kernels where time_us is not null or speedup is not null order by id""",
    "create index night_regions_by_signature on night_regions (signature)",
    "alter table kernels add column strides text not null default '[[], []]'",
)
VERSION_3 = (
    "alter table measurements add column basis text not null default ''",
    """update measurements
        set basis = case when gpu like 'estimated:%' then 'estimated' else 'measured' end""",
)
TABLES = (
    "certificates",
    "kernels",
    "nights",
    "night_models",
    "night_regions",
    "jobs",
    "measurements",
)


def _examine(connection: sqlite3.Connection, whole: bool, marked: bool) -> None:
    for table in TABLES:
        connection.execute(f"select max(rowid) from {table}").fetchone()


DATABASE = Database(
    name="library",
    noun="library",
    place="file",
    elsewhere="another file with --library",
    error=LibraryError,
    versions=(VERSION_1, VERSION_2, VERSION_3),
    examine=_examine,
    application=0x616B6C62,
    linked=True,
    vacuum="incremental",
)
writing, using = DATABASE.writing, DATABASE.using
JSON_COLUMNS = ("value", "parameters")


def salvage(path: Path, new: Path) -> str:
    """Copy each row of `path` that can be read, and whose JSON is whole, into a new library;
    `4 kernels and 1 night were`, or `nothing was`.

    A kernel without its certificate, and a model or region without its night, are left behind.
    Raises OutputError where `new` cannot be written.
    """
    with (
        writing(new),
        contextlib.closing(DATABASE.connect(new)) as target,
        contextlib.closing(reading_damaged(path, "kernels")) as source,
    ):
        target.execute("pragma foreign_keys = off")
        for table in TABLES:
            copy_rows(source, target, table, _is_whole, path.stat().st_size)
        with transaction(target):
            target.execute(
                "delete from kernels where certificate not in (select sha256 from certificates)"
            )
            for rows in ("night_models", "night_regions"):
                target.execute(f"delete from {rows} where night not in (select id from nights)")
        # What stayed in the journal would be lost with the renaming.
        target.execute("pragma wal_checkpoint(truncate)")
        kernels, nights = (
            int(target.execute(f"select count(*) from {table}").fetchone()[0])
            for table in ("kernels", "nights")
        )
    if not kernels and not nights:
        return "nothing was"
    return f"{count(kernels, 'kernel')} and {count(nights, 'night')} were"


def _is_whole(row: dict[str, object]) -> bool:
    return all(_is_json(row[name]) for name in JSON_COLUMNS if name in row)


def _is_json(value: object) -> bool:
    try:
        json.loads(str(value))
    except (ValueError, RecursionError):
        return False
    return True


Say = Callable[[str], None]
FILE_NAME = "library.sqlite"
SUFFIXES = (".sqlite", ".sqlite3", ".db")
"""A file of another name that is no database is somebody's text, not a damaged library."""


def default_library() -> Path:
    """The user's own library. Raises SettingError for a user without a home."""
    return data_folder() / FILE_NAME


def open_library(path: Path, say: Say | None = None) -> OpenedDatabase:
    """Open the file at `path`, making it where it is missing.

    A damaged one is set aside, what can be read of it goes into a new one, and `say` gets one line.
    Raises LibraryError for a newer format, another program's file, or damage while another process
    uses it; OutputError where it cannot be written.
    """
    _refuse_others(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with DATABASE.opening(path):
        # SQLite takes an empty file for a new one.
        with writing(path):
            emptied = path.is_file() and not path.stat().st_size
        opened = DATABASE.open(path, salvage)
    if emptied:
        opened = opened._replace(
            mended=f"The library {str(path)!r} was a file of 0 bytes: what it held is lost, and a "
            "new one is begun. Next: put a copy in its place, if you have one."
        )
    if opened.mended is not None and say is not None:
        say(opened.mended)
    return opened


def _refuse_others(path: Path) -> None:
    """Read the head without SQLite, which would write beside the file of another program."""
    with writing(path):
        refuse_strange(path, linked=True)
        try:
            with path.open("rb") as file:
                head = file.read(HEAD_BYTES)
        except FileNotFoundError:
            return
    if len(head) == HEAD_BYTES and head.startswith(MAGIC):
        version, application = int.from_bytes(head[60:64]), int.from_bytes(head[68:72])
        if version or application:
            with contextlib.suppress(Damage):
                DATABASE.refuse_foreign(path, version, application)
    elif head and path.suffix not in SUFFIXES:
        raise LibraryError(
            f"{str(path)!r} is no library of kernels. Expected a file that 'agentkernel batch' "
            f"wrote, or a new one whose name ends in {SUFFIXES[0]}. Next: check --library."
        )
