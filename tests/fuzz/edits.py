"""Edits of files that hypothesis draws: what a stranger or a broken disk may have done."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hypothesis import strategies as st

CANARY = "PWNED"
"""A file of this name beside what is read says that code of a text was run."""
RUNS_CODE = f"__import__('pathlib').Path('{CANARY}').touch()"
WORDS = (
    "",
    " ",
    "\0",
    "\x1b[2J\x1b]0;title\x07",
    "\u202eabc\u2066",
    "\ud800",
    "\udcff",
    "\r\n# heading\n| a | b |",
    "[red]markup[/red][/]",
    "<script>alert(1)</script>",
    "{{ 7 * 7 }}{% for x in y %}",
    "%s%n{0.__class__}",
    "../outside/precious",
    "../../../../etc/passwd",
    "/dev/zero",
    "~root/x",
    "$HOME",
    "a" * 300,
    "é" * 70_000,
    "x y" * 400_000,
    "2001-99-99",
    "2001-01-01 99:99:99",
    "1:60:60",
    "0x" + "f" * 40,
    "9" * 5_000,
    "1" * 400,
    "1e999",
    "nan",
    "-0",
    "true",
    "null",
    "~",
    "last",
    "evil:Model",
    "evil.py:Model",
    "evil",
    "os:system",
    "module:" + RUNS_CODE,
    RUNS_CODE,
    f'!!python/object/apply:eval ["{RUNS_CODE}"]',
    "*all",
    "&all [*all, *all]",
    "<<: *all",
    "? [a, b]\n: c",
    "- " * 2_000,
    "x=f32[4,8]",
    "x=f32[" + "9" * 30 + ",8]",
    "x=f32[0]",
    "x=i64[4]<" + "9" * 5_000,
    "ids=i64[2,16]<\u00b2",
    "x=" + "(" * 300,
    "x={[]: 1}",
    "(" * 250 + ")" * 250,
    "-" * 20_000 + "1",
    "a" + ".a" * 5_000,
    "lambda: " * 300 + "1",
    "[" * 100 + "]" * 100,
    "f'{" * 100,
    "if x:\n    pass\nel",
    "\n    \t  ",
    "\\\n",
    '"""',
    "#" * 1_200_000,
    "\n" * 60_000,
    "# coding: utf-7\n",
    "\ufeff",
    "def f():\n  yield\nasync def g():\n  await f\n",
    "from __future__ import braces\n",
    "class C[T: int = str](metaclass=M): x: T\n",
    "match x:\n  case {**y}: pass\n",
    "nonlocal x\n",
    "x: (yield) = 1\n",
    "return\n",
    "import triton.language as tl\nfrom torch import *\n",
    "1 if x else " * 500 + "1",
    "x = 0o777_777 + 1_0e400j\n",
    "global __builtins__\n",
    "del x, (y, *z)\n",
    "*a, *b = c\n",
    "@property\n",
)
VALUES = (
    *("null", "true", "-1", "0", "1e999", "-1e999", "NaN", "1.5", "{}", "[]", '""', "[[]]"),
    *("9" * 5_000, "1" + "0" * 400, "9223372036854775808", "18446744073709551616", "0.1e-400"),
    *('{"": null}', '{"__class__": "x"}', "[null, 1, {}]", "1" * 18, "2147483648", "4096"),
    *("[" * 3_000 + "]" * 3_000, '{"a":' * 900 + "1" + "}" * 900),
)
STATEMENTS = (
    "drop table {table}",
    "delete from {table}",
    "alter table {table} rename to other",
    "alter table {table} rename column {column} to other",
    "alter table {table} add column more text not null default 'x'",
    "insert into {table} select * from {table}",
    "create trigger t after insert on {table} begin delete from {table}; end",
    "create trigger t before insert on {table} begin select raise(abort, 'no\x1b[2J'); end",
    "create index i on {table}({column})",
    "alter table {table} rename to other; create view {table} as select * from other",
    "alter table {table} rename to other; create view {table} as with recursive "
    "t(x) as (select 1 union all select x + 1 from t) select x as {column} from t",
    "alter table {table} rename to other; create table {table} as select *, rowid as id from other",
    "alter table {table} rename to other; create view {table} as select "
    "zeroblob(1500000000) as {column} from other",
    "alter table {table} rename to other; "
    "create table {table}({column} text generated always as (hex(zeroblob(700000000))) virtual, x)"
    "; insert into {table}(x) values (1)",
    "pragma user_version = 99",
    "pragma user_version = -7",
    "pragma application_id = 7",
    "pragma journal_mode = delete",
    "pragma writable_schema = on; update sqlite_master set sql = 'create table x(' "
    "where name = '{table}'",
    "pragma writable_schema = on; update sqlite_master set rootpage = 1 where name = '{table}'",
)
Kind = Literal["bytes", "text", "json", "yaml", "sqlite", "folder"]
KINDS: dict[str, Kind] = {
    ".json": "json",
    ".jsonl": "text",
    ".md": "text",
    ".py": "text",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".yaml": "yaml",
}
"""How a file is edited, by the end of its name; others by their bytes."""


TYPED = ("exported", "knowledge", "library.sqlite", "runs")
"""What the user names: where that is a link, it is meant to be followed."""


class Pairs(list[tuple[str, object]]):
    """An object of JSON that may have a key twice."""


@dataclass(frozen=True)
class Raw:
    """A value as it is to stand in the text."""

    text: str


@dataclass(frozen=True)
class BytesEdit:
    """`at`, `to`: shares of the file's length."""

    how: Literal["flip", "cut", "drop", "insert", "repeat", "move", "whole"]
    at: float
    to: float
    data: bytes

    def applied(self, old: bytes) -> bytes:
        """The file afterwards."""
        first, last = sorted((int(self.at * len(old)), int(self.to * len(old))))
        part = old[first:last]
        match self.how:
            case "flip":
                mask = self.data[0] if self.data else 0xFF
                return (
                    old[:first]
                    + bytes(x ^ (mask or 1) for x in old[first : first + 1])
                    + (old[first + 1 :])
                )
            case "cut":
                return old[:first]
            case "drop":
                return old[:first] + old[last:]
            case "insert":
                return old[:first] + self.data + old[first:]
            case "repeat":
                return old[:last] + part + old[last:]
            case "move":
                return part + old[:first] + old[last:]
            case "whole":
                return self.data


@dataclass(frozen=True)
class TreeEdit:
    """Of one value in a text of JSON, which YAML is too; `node` numbers the values."""

    how: Literal["set", "rename", "remove", "twice", "nest", "swap", "copy"]
    node: int
    other: int
    value: str
    """As it stands in the text."""

    def applied(self, old: bytes) -> bytes:
        """The file afterwards; as it was where it is no JSON, or nested too deeply."""
        try:
            return self._applied(json.loads(old, object_pairs_hook=Pairs))
        except (ValueError, RecursionError):
            return old

    def _applied(self, tree: object) -> bytes:
        places = _places(tree)
        if not places:
            return self.value.encode(errors="surrogatepass")
        (inside, at), (there, where) = (places[n % len(places)] for n in (self.node, self.other))
        match self.how:
            case "set":
                _put(inside, at, Raw(self.value))
            case "rename" if isinstance(inside, Pairs):
                inside[at] = (self.value[:99_999], inside[at][1])
            case "twice":
                inside.append(inside[at])
            case "nest":
                depth = 1 + self.other % 1_200
                _put(inside, at, Raw("[" * depth + _dumped(_value(inside, at)) + "]" * depth))
            case "swap":
                one, two = Raw(_dumped(_value(inside, at))), Raw(_dumped(_value(there, where)))
                _put(inside, at, two)
                _put(there, where, one)
            case "copy":
                _put(inside, at, Raw(_dumped(_value(there, where))))
            case _:
                del inside[at]
        return _dumped(tree).encode(errors="surrogatepass")


@dataclass(frozen=True)
class CellEdit:
    """Of one value in a database."""

    table: int
    row: int
    column: int
    edit: BytesEdit | TreeEdit | None
    value: str | int | float | bytes | None
    """What takes its place where there is no `edit`."""

    def apply(self, database: sqlite3.Connection) -> None:
        """Write it."""
        tables = _tables(database)
        if not tables:
            return
        table, columns = tables[self.table % len(tables)]
        column = columns[self.column % len(columns)]
        rows = database.execute(f"select rowid, {column} from {table} limit 50").fetchall()
        if not rows:
            return
        number, old = rows[self.row % len(rows)]
        new: object = self.value
        if self.edit is not None:
            text = old if isinstance(old, bytes) else str(old).encode(errors="surrogatepass")
            changed = self.edit.applied(text)
            new = changed if isinstance(old, bytes) else changed.decode(errors="replace")
        if isinstance(new, str):
            new = new.encode(errors="replace").decode()
        database.execute(f"update {table} set {column} = ? where rowid = ?", (new, number))


@dataclass(frozen=True)
class SchemaEdit:
    """A statement about a table of a database."""

    table: int
    column: int
    statement: str

    def apply(self, database: sqlite3.Connection) -> None:
        """Run it."""
        tables = _tables(database)
        if tables:
            table, columns = tables[self.table % len(tables)]
            column = columns[self.column % len(columns)]
            database.executescript(self.statement.format(table=table, column=column))


@dataclass(frozen=True)
class Replaced:
    """Something else in the file's place."""

    by: Literal["nothing", "link", "dangling", "loop", "device", "pipe", "folder", "huge", "empty"]

    def apply(self, path: Path, outside: Path) -> None:
        """Put it there."""
        folder = path.is_dir()
        if folder:
            shutil.rmtree(path)
        else:
            path.unlink()
        match self.by:
            case "link":
                path.symlink_to(outside / ("folder" if folder else f"precious{path.suffix}"))
            case "dangling":
                path.symlink_to(outside / "none")
            case "loop":
                path.symlink_to(path.name)
            case "device":
                path.symlink_to("/dev/zero")
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "huge":
                path.touch()
                os.truncate(path, 1_200_000_000)
            case "empty":
                path.touch()


Content = BytesEdit | TreeEdit
Change = Content | CellEdit | SchemaEdit | Replaced


@dataclass(frozen=True)
class Edit:
    """A change of one file, which `file` numbers."""

    file: int
    change: Change


shares = st.floats(0, 1, allow_subnormal=False)
numbers = st.integers(0, 5_000)
words = st.sampled_from(WORDS)
texts = words | st.text(max_size=20)
tokens = st.sampled_from(VALUES) | texts.map(json.dumps)
byte_edits = st.builds(
    BytesEdit,
    st.sampled_from(("flip", "cut", "drop", "insert", "repeat", "move", "flip", "insert")),
    shares,
    shares,
    st.binary(max_size=8) | texts.map(lambda text: text.encode(errors="surrogatepass")),
)
whole_files = st.builds(
    BytesEdit,
    st.just("whole"),
    st.just(0.0),
    st.just(0.0),
    st.binary(max_size=64)
    | texts.map(lambda text: text.encode(errors="surrogatepass"))
    | tokens.map(str.encode)
    | st.sampled_from((b"\xff\xfe", b"\x1f\x8b\x08\0", b"SQLite format 3\0", b"x" * 34_000_000)),
)
tree_edits = st.builds(
    TreeEdit,
    st.sampled_from(("set", "set", "set", "rename", "remove", "twice", "nest", "swap", "copy")),
    numbers,
    numbers,
    tokens,
)
cell_edits = st.builds(CellEdit, numbers, numbers, numbers, byte_edits | tree_edits, st.none())
cell_edits |= st.builds(
    CellEdit,
    numbers,
    numbers,
    numbers,
    st.none(),
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.binary(max_size=9) | texts,
)
schema_edits = st.builds(SchemaEdit, numbers, numbers, st.sampled_from(STATEMENTS))
replaced = st.builds(
    Replaced,
    st.sampled_from(
        ("nothing", "link", "dangling", "loop", "device", "pipe", "folder", "huge", "empty")
    ),
)
CHANGES: dict[Kind, st.SearchStrategy[Change]] = {
    "bytes": byte_edits | whole_files | replaced,
    "text": byte_edits | byte_edits | byte_edits | whole_files | replaced,
    "json": tree_edits | tree_edits | tree_edits | byte_edits | whole_files | replaced,
    "yaml": tree_edits | tree_edits | byte_edits | byte_edits | whole_files | replaced,
    "sqlite": cell_edits | cell_edits | schema_edits | byte_edits | replaced,
    "folder": replaced,
}


def kind_of(path: Path) -> Kind:
    """How the file, or the folder, is edited."""
    return "folder" if path.is_dir() else KINDS.get(path.suffix, "bytes")


@st.composite
def edits_of(draw: st.DrawFn, kinds: Sequence[Kind]) -> tuple[Edit, ...]:
    """One to four edits of files of these kinds."""
    found = []
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3, 4)))):
        number = draw(st.integers(0, len(kinds) - 1))
        found.append(Edit(number, draw(CHANGES[kinds[number]])))
    return tuple(found)


def apply(edits: Sequence[Edit], files: Sequence[Path], outside: Path) -> None:
    """Edit `files`; what is no regular file any more stays as it is."""
    for edit in edits:
        path, change = files[edit.file], edit.change
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue
        if path.name in TYPED and change in (Replaced("link"), Replaced("dangling")):
            continue
        if isinstance(change, Replaced):
            change.apply(path, outside)
        elif path.is_dir():
            continue
        elif isinstance(change, CellEdit | SchemaEdit):
            _in_database(path, change)
        elif path.stat().st_size < 2**30:
            path.write_bytes(change.applied(path.read_bytes()))


def _in_database(path: Path, change: CellEdit | SchemaEdit) -> None:
    """What the database refuses does not happen."""
    with (
        contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError),
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database,
    ):
        database.execute("pragma synchronous = off")
        change.apply(database)
        database.execute("pragma wal_checkpoint(truncate)")


def _tables(database: sqlite3.Connection) -> list[tuple[str, list[str]]]:
    query = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
    names = [str(row[0]) for row in database.execute(query)]
    columns = ((name, database.execute(f"pragma table_info({name})").fetchall()) for name in names)
    return [(name, [str(row[1]) for row in rows]) for name, rows in columns if rows]


def _places(tree: object) -> list[tuple[list[object], int]]:
    """Each value's list of those beside it, and its number there."""
    found: list[tuple[list[object], int]] = []
    waiting = [tree]
    while waiting:
        inside = waiting.pop()
        if isinstance(inside, list):
            for at in range(len(inside)):
                found.append((inside, at))
                waiting.append(_value(inside, at))
    return found


def _value(inside: list[object], at: int) -> object:
    return inside[at][1] if isinstance(inside, Pairs) else inside[at]


def _put(inside: list[object], at: int, value: object) -> None:
    inside[at] = (inside[at][0], value) if isinstance(inside, Pairs) else value


def _dumped(value: object) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(k)}: {_dumped(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dumped, value)) + "]"
    return json.dumps(value)
