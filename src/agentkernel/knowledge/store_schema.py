"""Tables, value types and the lexical index of the knowledge store.

Words and identifiers are split and stemmed here, for the index and for every search by words.
"""

from __future__ import annotations

import functools
import json
import keyword
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import Literal, NamedTuple

from pydantic import ValidationError

from agentkernel.domain.errors import KnowledgeError
from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.storage.sqlite import Damage, Database, transaction

FILE_NAME = "knowledge.sqlite"
BATCH = 500
"""Entries a transaction."""
CACHE_KIB = 65_536
"""SQLite's page cache: ranking a match is three times slower with the default of 2 MB."""

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
    """insert into meta values
        ('identity', lower(hex(randomblob(16)))), ('next_seq', '1'), ('last_doc', '0')""",
)
"""`entries` holds what is filtered by, in short rows; the JSON of an entry is in `bodies`; `words`
is fed with `words_of` only, and `terms` counts the documents of each word."""


def number_from(first_seq: int) -> str:
    """What is executed in a new file whose first change is to have that number."""
    return f"update meta set value = '{int(first_seq)}' where key = 'next_seq'"


def _examine(connection: sqlite3.Connection, whole: bool, marked: bool) -> None:
    meta = dict(connection.execute("select key, value from meta"))
    if not {"identity", "next_seq", "last_doc"} <= meta.keys():
        raise Damage("its head is incomplete")
    connection.execute("select max(seq) from entries").fetchone()
    connection.execute("select max(doc) from bodies").fetchone()
    connection.execute("select 1 from words where words match 'x' limit 1").fetchone()
    bare = "select id from entries where doc not in (select doc from bodies) limit 1"
    if whole and connection.execute(bare).fetchone() is not None:
        raise Damage("an entry has no body")
    # Damage that the checks do not see lies in the index of words.
    if marked or meta.get("words_format") != str(WORDS_FORMAT):
        with transaction(connection):
            make_words(connection)


DATABASE = Database(
    name="knowledge in",
    noun="knowledge file",
    place="folder",
    elsewhere="another folder",
    error=KnowledgeError,
    versions=(SCHEMA,),
    examine=_examine,
)
writing, using = DATABASE.writing, DATABASE.using


def read_entry(body: object) -> Entry:
    """The entry of a row. Raises Damage where it is none."""
    try:
        return Entry.model_validate_json(str(body))
    except ValidationError as error:
        raise Damage("an entry's JSON is broken") from error


Say = Callable[[str], None]
State = Literal["current", "superseded", "removed"]
"""Only a current entry is found; the others are kept and can be shown."""


class PutCounts(NamedTuple):
    """How many entries were new, had another content, or were there already."""

    added: int = 0
    changed: int = 0
    same: int = 0

    def plus(self, other: PutCounts) -> PutCounts:
        """Both together."""
        return PutCounts(
            self.added + other.added, self.changed + other.changed, self.same + other.same
        )


class Progress(NamedTuple):
    """How far an import is: what it reads, how many of its rows are done, and a word of the
    importer's own."""

    source: str
    position: int
    state: str = "unfinished"


class OriginState(NamedTuple):
    """Of the entries of some origins: how many are current, and the last change to any."""

    current: int
    last_seq: int


class LexicalHit(NamedTuple):
    """A hit of the lexical index: BM25 (greater is better) and the 1-based rank."""

    id: str
    score: float
    rank: int


class Settled(NamedTuple):
    """What `settle` did: `winner` is the experience that is found from now on."""

    put: PutCounts
    winner: str
    superseded: tuple[str, ...]


@dataclass(frozen=True)
class Removed:
    """In the order of change: an entry that an index has to drop."""

    id: str


class Change(NamedTuple):
    """The state that an id is in since the change number `seq`."""

    seq: int
    entry: Entry | Removed


@dataclass(frozen=True)
class OldVersion:
    """A version that is not found any more. `ended`: ISO 8601, UTC."""

    entry: Entry
    why: str
    superseded_by: str | None
    ended: str


@dataclass(frozen=True)
class Stats:
    """Numbers of current entries; `by_source` names the most frequent sources only."""

    current: int
    superseded: int
    removed: int
    versions: int
    """Older contents that are kept."""
    by_kind: Mapping[str, int]
    by_licence: Mapping[str, int]
    by_verified: Mapping[str, int]
    by_source: Mapping[str, int]
    file_bytes: int


@dataclass(frozen=True)
class Imported:
    """What an import took in. `broken` names the first lines that could not be read, with why."""

    put: PutCounts
    expected: int | None
    """What the header says; None: there was no header."""
    broken_count: int
    broken: tuple[str, ...]


WORDS_FORMAT = 2
"""Raised with every change of `words_of` or `stem`: an index made with others is made anew."""
LONGEST_WORD = 48
"""Longer ones are hashes and encoded data."""
MOST_CHARACTERS = 200_000
"""What is read of one text."""

SHORTEST_STEMMED = 3
ENDINGS = (
    ("sses", "ss"),
    ("ies", "y"),
    ("ing", ""),
    ("edly", ""),
    ("ed", ""),
    ("ly", ""),
    ("es", ""),
    ("ss", "ss"),
    ("s", ""),
)
"""Ending -> what stands in its place; the first that fits counts."""

_COMMON = """self cls super init forward args kwargs int str len range print list dict tuple
the an of to on at be by it its this that are was were has have can may will"""
STOP_WORDS = frozenset([*map(str.lower, keyword.kwlist), *_COMMON.split()])
"""Words of nearly every Python file or English sentence."""

_IDENTIFIER = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+d(?![a-z])|\d+")


def words_of(text: str) -> Iterator[str]:
    """The words of `text`, lower case, in order and with repetitions.

    An identifier gives its parts and, where it has several, the parts joined: `LayerNorm2d`,
    `layer_norm_2d` and `layernorm2d` share `layernorm2d`, the first two also `layernorm`. Dots and
    all punctuation divide. Single characters and stop words are left out.
    """
    return chain.from_iterable(map(_split, _identifiers(text)))


def distinct_words(*texts: str) -> Iterator[str]:
    """Each word of `texts` once, in order."""
    identifiers = dict.fromkeys(chain.from_iterable(map(_identifiers, texts)))
    return iter(dict.fromkeys(chain.from_iterable(map(_split, identifiers))))


@functools.lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """`word` without the endings of English plurals and verbs: `tiles`, `tiled` and `tiling` give
    `til`. Short words and those with digits stay as they are."""
    if len(word) <= SHORTEST_STEMMED or not word.isalpha():
        return word
    for ending, instead in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) + len(instead) >= SHORTEST_STEMMED:
            word = word[: len(word) - len(ending)] + instead
            break
    doubled = len(word) > SHORTEST_STEMMED + 1 and word[-1] == word[-2] and word[-1] not in "ls"
    silent = len(word) > SHORTEST_STEMMED and word.endswith("e")
    return word[:-1] if doubled or silent else word


def stems_of(text: str) -> Iterator[str]:
    """`words_of`, each stemmed."""
    return map(stem, words_of(text))


def distinct_stems(*texts: str) -> Iterator[str]:
    """Each stem of `texts` once, in order."""
    return iter(dict.fromkeys(map(stem, distinct_words(*texts))))


def _identifiers(text: str) -> list[str]:
    return _IDENTIFIER.findall(text, 0, MOST_CHARACTERS)


@functools.lru_cache(maxsize=65_536)
def _split(identifier: str) -> tuple[str, ...]:
    # Only ASCII names are known to be written in camel case.
    found = _PART.findall(identifier) if identifier.isascii() else identifier.split("_")
    parts = [part.lower() for part in found if part]
    joined = "".join(parts)
    words = [*parts, joined] if len(parts) > 1 else parts
    if len(parts) > 2 and parts[-1][0].isdigit():
        words.append("".join(parts[:-1]))
    return tuple(word for word in words if 1 < len(word) <= LONGEST_WORD and word not in STOP_WORDS)


TITLE_WEIGHT = 4.0
NAMES_WEIGHT = 1.5
TEXT_WEIGHT = 1.0
"""BM25 weights of the columns: a title says what the whole is about."""
MOST_WORDS = 600
"""Distinct words of a question that are looked at."""
MOST_COMMON = 4
"""Words that are asked for together where all are common."""
MOST_TERMS = 24
"""Words of a question that are searched for, the rarest ones."""
MOST_MATCHES = 3_000
"""Sum of the searched words' document counts: the time of a query grows with it."""


class Columns(NamedTuple):
    """What is indexed of an entry: words, a space apart."""

    title: str
    names: str
    text: str

    def terms(self) -> set[str]:
        """All distinct words."""
        return {word for column in self for word in column.split()}


def columns_of(entry: Entry) -> Columns:
    """Code goes into `names`, each word once: how often a program repeats one says nothing."""
    prose = [entry.summary, *entry.failures]
    code = [entry.id, entry.problem]
    if entry.kind in ("note", "fix"):
        prose.append(entry.answer)
    else:
        code.append(entry.answer)
    if entry.structure is not None:
        code.extend(entry.structure.ops)
    code.extend(entry.passages)
    return Columns(
        " ".join(stems_of(entry.title)),
        " ".join(distinct_stems(*code)),
        " ".join(stems_of("\n".join(prose))),
    )


class Terms:
    """How the document counts change in one transaction, written once at its end."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._counts: Counter[str] = Counter()

    def add(self, doc: int, entry: Entry) -> None:
        """Let `entry` be found under the number `doc`."""
        columns = columns_of(entry)
        self._connection.execute(
            "insert into words (rowid, title, names, text) values (?, ?, ?, ?)", (doc, *columns)
        )
        self._counts.update(columns.terms())

    def drop(self, doc: int, entry: Entry) -> None:
        """Undo `add`; `entry` has to be what was added."""
        columns = columns_of(entry)
        self._connection.execute(
            "insert into words (words, rowid, title, names, text) values ('delete', ?, ?, ?, ?)",
            (doc, *columns),
        )
        self._counts.subtract(columns.terms())

    def write(self) -> None:
        """Bring the counts into the file."""
        changed = sorted((term, count) for term, count in self._counts.items() if count)
        self._connection.executemany(
            "insert into terms values (?, ?) "
            "on conflict (term) do update set documents = documents + excluded.documents",
            changed,
        )
        self._counts.clear()


def make_words(connection: sqlite3.Connection) -> None:
    """Make the index of words anew from the current entries. Part of the caller's transaction."""
    connection.execute("insert into words (words) values ('delete-all')")
    connection.execute("delete from terms")
    terms = Terms(connection)
    rows = connection.execute(
        "select doc, body from bodies join entries using (doc) where state = 'current' order by doc"
    )
    for doc, body in rows:
        terms.add(doc, read_entry(body))
    terms.write()
    connection.execute(
        "insert or replace into meta values ('words_format', ?)", (str(WORDS_FORMAT),)
    )


class _Term(NamedTuple):
    word: str
    documents: int


def _known_terms(connection: sqlite3.Connection, words: str) -> list[_Term]:
    """The words of `words` that the index knows, rarest first."""
    asked = tuple(islice(distinct_stems(words), MOST_WORDS))
    rows = connection.execute(
        "select term, documents from terms "
        "where term in (select value from json_each(?)) and documents > 0 order by documents, term",
        (json.dumps(asked),),
    )
    return [_Term(*row) for row in rows]


def search(
    connection: sqlite3.Connection, words: str, limit: int, filters: Filters
) -> list[LexicalHit]:
    """The current entries that share words with `words`, best first; any characters may be in it.

    The rarest words are searched for, ordered by BM25. Where that finds nothing, as many of the
    common ones as occur together are, titles first: BM25 would tell nothing of them and take long.
    """
    terms = _known_terms(connection, words)
    matches = tuple(accumulate(term.documents for term in terms))
    within = sum(total <= MOST_MATCHES for total in matches[:MOST_TERMS])
    scored = _ranked(connection, terms[:within], limit, filters) if within else {}
    if not scored:
        common = terms[within : within + MOST_COMMON]
        scored = _together(connection, common, limit, filters)
    ordered = sorted(scored.items(), key=lambda item: (-item[1], item[0]))
    return [LexicalHit(name, score, rank) for rank, (name, score) in enumerate(ordered, start=1)]


def _ranked(
    connection: sqlite3.Connection, terms: Sequence[_Term], limit: int, filters: Filters
) -> dict[str, float]:
    """Id -> BM25 of the best entries with any of `terms`."""
    where, values = where_filters(filters)
    rows = connection.execute(
        f"""select e.id, -f.rank from words f cross join entries e on e.doc = f.rowid
            where f.words match ? and f.rank match ? and e.state = 'current' {where}
            order by f.rank limit ?""",
        (
            " OR ".join(f'"{term.word}"' for term in terms),
            f"bm25({TITLE_WEIGHT}, {NAMES_WEIGHT}, {TEXT_WEIGHT})",
            *values,
            limit,
        ),
    )
    return {str(name): float(score) for name, score in rows}


def _together(
    connection: sqlite3.Connection, terms: Sequence[_Term], limit: int, filters: Filters
) -> dict[str, float]:
    """Id -> the share of the rarest `terms` that an entry was asked to have, times where."""
    where, values = where_filters(filters)
    found: dict[str, float] = {}
    for column, weight in (("title : ", TITLE_WEIGHT), ("", TEXT_WEIGHT)):
        for count in range(len(terms), 0, -1):
            if len(found) >= limit:
                return found
            match = " AND ".join(f'"{term.word}"' for term in terms[:count])
            rows = connection.execute(
                f"""select e.id from words f cross join entries e on e.doc = f.rowid
                    where f.words match ? and e.state = 'current' {where} limit ?""",
                (f"{column}({match})", *values, limit),
            )
            for (name,) in rows:
                if len(found) < limit:
                    found.setdefault(str(name), weight * count / len(terms))
    return found


def where_filters(filters: Filters) -> tuple[str, Sequence[str]]:
    """Conditions on the table `e` (entries), each begun with "and", with their values."""
    conditions: list[str] = []
    values: list[str] = []
    for column, allowed in (
        ("kind", filters.kinds),
        ("licence", filters.licences),
        ("verified", filters.verified),
    ):
        if allowed:
            conditions.append(f"and e.{column} in (select value from json_each(?))")
            values.append(json.dumps(allowed))
    if filters.without_ids:
        conditions.append("and e.id not in (select value from json_each(?))")
        values.append(json.dumps(filters.without_ids))
    if filters.architecture is not None:
        conditions.append("and (e.architectures = '' or instr(e.architectures, ?) > 0)")
        values.append(f" {filters.architecture} ")
    return " ".join(conditions), values
