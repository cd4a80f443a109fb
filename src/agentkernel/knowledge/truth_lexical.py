"""Which entries share rare words with a question?"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from agentkernel.domain.knowledge import Entry, Filters
from agentkernel.knowledge.truth_schema import read_entry
from agentkernel.knowledge.truth_types import LexicalHit
from agentkernel.knowledge.truth_words import WORDS_FORMAT, distinct_stems, stems_of

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


def words_in_force(connection: sqlite3.Connection) -> bool:
    """Whether the index of words was made by this version of `words_of`."""
    row = connection.execute("select value from meta where key = 'words_format'").fetchone()
    return bool(row == (str(WORDS_FORMAT),))


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
