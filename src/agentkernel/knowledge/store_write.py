"""Writes of one transaction to the knowledge store, and the choice between two experiences."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import KnowledgeError
from agentkernel.domain.knowledge import Entry
from agentkernel.domain.plan import FOREIGN, WON, read_won
from agentkernel.knowledge.store_schema import (
    Progress,
    PutCounts,
    Settled,
    State,
    Terms,
    read_entry,
)
from agentkernel.storage.sqlite import Damage

LEAST_TIME_US = 0.1
"""A kernel takes longer than that, and the clock that times it resolves about 0.5 us (CUDA Runtime
API, cudaEventElapsedTime)."""
CLOCKS_APART = timedelta(days=1)
"""What the clocks of two machines may differ by; an entry made later than that has a false date."""
UNDATED = datetime.min.replace(tzinfo=UTC)
VERIFIED_RANK = {"no": 0, "interpreter": 1, "gpu": 2}


class _Known(NamedTuple):
    doc: int
    state: State
    sha256: str


class Trust(NamedTuple):
    """How far the figures of an experience are believed; the greater of two is believed."""

    possible: bool
    measured_here: bool
    verified: int
    own: bool
    dated: bool


class StoreWriter:
    """What one transaction does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._terms = Terms(connection)
        head = dict(connection.execute("select key, value from meta"))
        self._seq = int(head["next_seq"])
        self._doc = int(head["last_doc"])
        self._clock = datetime.now(UTC)
        self._now = self._clock.isoformat(timespec="seconds")

    def finish(self) -> None:
        """Write what is counted. Nothing may follow."""
        self._terms.write()
        numbers = ((str(self._seq), "next_seq"), (str(self._doc), "last_doc"))
        self._db.executemany("update meta set value = ? where key = ?", numbers)

    def progress(self, progress: Progress) -> None:
        self._db.execute("insert or replace into imports values (?, ?, ?)", progress)

    def put(self, entry: Entry) -> PutCounts:
        known = self._known(entry.id)
        # Not of `created`: an importer may stamp what has not changed.
        content = sha256_text(entry.model_dump_json(exclude={"created"}))
        if known is None:
            self._doc += 1
            self._insert(self._doc, entry, content)
            return PutCounts(added=1)
        if known.sha256 == content:
            return PutCounts(same=1)
        if entry.kind == "experience" and self._outweighed(entry, self._body(known.doc)):
            return PutCounts(same=1)
        self._replace(known, entry, content)
        return PutCounts(changed=1)

    def _outweighed(self, entry: Entry, known: Entry) -> bool:
        """True where `entry` may not take the place of `known`, whose id it has."""
        ours, theirs = trust_in(known, self._clock), trust_in(entry, self._clock)
        return (ours.own, ours.measured_here) > (theirs.own, theirs.measured_here)

    def _insert(self, doc: int, entry: Entry, content: str) -> None:
        self._db.execute(
            """insert into entries (id, seq, state, kind, licence, verified, source,
                   architectures, topic, sha256, doc)
               values (?, ?, 'current', ?, ?, ?, ?, ?, ?, ?, ?)""",
            (entry.id, self._next_seq(), *_columns(entry, content), doc),
        )
        self._db.execute("insert into bodies values (?, ?)", (doc, entry.model_dump_json()))
        self._terms.add(doc, entry)

    def _replace(self, known: _Known, entry: Entry, content: str) -> None:
        old = self._body(known.doc)
        why = "another content was put" if known.state == "current" else "put again after it ended"
        self._db.execute(
            "insert into history (id, body, why, ended) values (?, ?, ?, ?)",
            (entry.id, old.model_dump_json(), why, self._now),
        )
        if known.state == "current":
            self._terms.drop(known.doc, old)
        self._db.execute(
            """update entries set seq = ?, state = 'current', superseded_by = null, why = '',
                   ended = '', kind = ?, licence = ?, verified = ?, source = ?, architectures = ?,
                   topic = ?, sha256 = ? where doc = ?""",
            (self._next_seq(), *_columns(entry, content), known.doc),
        )
        self._db.execute(
            "update bodies set body = ? where doc = ?", (entry.model_dump_json(), known.doc)
        )
        self._terms.add(known.doc, entry)

    def supersede(self, old_id: str, new_id: str, why: str) -> bool:
        new = self._known(new_id)
        if new is None or new.state != "current" or new_id == old_id:
            raise KnowledgeError(
                f"Cannot supersede {old_id!r} by {new_id!r}: expected the id of another entry that "
                "is current. Next: put that entry first."
            )
        if self._known(old_id) is None:
            raise KnowledgeError(
                f"No entry {old_id!r}: expected the id of one that is known. Next: put it first."
            )
        return self.end(old_id, "superseded", new_id, why)

    def end(self, entry_id: str, state: State, superseded_by: str | None, why: str) -> bool:
        """Let a current entry be found no more. False: it was not current."""
        known = self._known(entry_id)
        if known is None or known.state != "current":
            return False
        self._terms.drop(known.doc, self._body(known.doc))
        self._db.execute(
            """update entries set seq = ?, state = ?, superseded_by = ?, why = ?, ended = ?
               where doc = ?""",
            (self._next_seq(), state, superseded_by, why, self._now, known.doc),
        )
        return True

    def settle(self, entry: Entry) -> Settled:
        """See `Truth.settle`. Raises KnowledgeError for figures that cannot be."""
        why = implausible_figures(entry)
        if why is not None:
            raise KnowledgeError(f"Experience {entry.id!r} is refused: {why}.")
        put = self.put(entry)
        known = self._known(entry.id)
        if entry.gain is None or not topic_of(entry) or known is None or known.state != "current":
            return Settled(put, entry.id, ())
        entry = self._body(known.doc)
        rivals = self._rivals(entry)
        ordered = sorted(
            [*rivals, entry],
            key=lambda item: (created_at(item, self._clock) or UNDATED, item.id == entry.id),
        )
        winner = ordered[0]
        for newer in ordered[1:]:
            if beats(newer, winner, self._clock):
                winner = newer
        losers = tuple(item.id for item in ordered if item.id != winner.id)
        for loser in losers:
            self.end(loser, "superseded", winner.id, "a better experience with the same problem")
        return Settled(put, winner.id, losers)

    def _rivals(self, entry: Entry) -> Sequence[Entry]:
        rows = self._db.execute(
            """select body from entries join bodies using (doc)
               where topic = ? and topic <> '' and state = 'current' and id <> ? order by id""",
            (topic_of(entry), entry.id),
        )
        found = [read_entry(row[0]) for row in rows]
        return [
            item for item in found if item.gain and entry.gain and item.gain.gpu == entry.gain.gpu
        ]

    def knows(self, entry_id: str) -> bool:
        """Whether there is or was such an entry."""
        return self._known(entry_id) is not None

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq - 1

    def _known(self, entry_id: str) -> _Known | None:
        row = self._db.execute(
            "select doc, state, sha256 from entries where id = ?", (entry_id,)
        ).fetchone()
        return None if row is None else _Known(*row)

    def _body(self, doc: int) -> Entry:
        row = self._db.execute("select body from bodies where doc = ?", (doc,)).fetchone()
        if row is None:
            raise Damage(f"entry {doc} has no body")
        return read_entry(row[0])


def beats(newer: Entry, older: Entry, now: datetime) -> bool:
    """Whether the newer of two experiences on one GPU is the one to show: the more trusted one,
    whatever the other claims; of equals the faster one, or that of another Triton version."""
    if newer.gain is None or older.gain is None:
        return False
    ours, theirs = trust_in(newer, now), trust_in(older, now)
    if ours != theirs:
        return ours > theirs
    return newer.triton != older.triton or newer.gain.time_us < older.gain.time_us


def trust_in(entry: Entry, now: datetime) -> Trust:
    """How far the figures of `entry` are believed at `now`: what was measured here before all,
    then what was verified, then what is our own."""
    own = not entry.source.startswith(FOREIGN)
    return Trust(
        possible=implausible_figures(entry) is None,
        measured_here=own and entry.verified == "gpu" and entry.gain is not None,
        verified=VERIFIED_RANK[entry.verified],
        own=own,
        dated=not entry.created or created_at(entry, now) is not None,
    )


def implausible_figures(entry: Entry) -> str | None:
    """Why the figures of an experience cannot be, as one line; None where they can."""
    if entry.kind != "experience":
        return None
    time_us = entry.gain.time_us if entry.gain else LEAST_TIME_US
    if not LEAST_TIME_US <= time_us < math.inf:
        return f"a time of {time_us:g} us; expected {LEAST_TIME_US} us or more"
    if WON in entry.hints and read_won(entry.hints[WON]) is None:
        return f"the hint {WON!r} cannot be read; expected the figures of a run"
    return None


def created_at(entry: Entry, now: datetime) -> datetime | None:
    """When the entry was made; None where it does not say, or says a time that is still to come."""
    try:
        stamp = datetime.fromisoformat(entry.created)
    except ValueError:
        return None
    stamp = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    return stamp if stamp <= now + CLOCKS_APART else None


def topic_of(entry: Entry) -> str:
    """What an experience answers: the SHA-256 of its problem and architectures; "" for others."""
    if entry.kind != "experience" or not entry.problem:
        return ""
    return sha256_text("\0".join((entry.problem, *sorted(entry.architectures))))


def _columns(entry: Entry, content: str) -> tuple[str, ...]:
    """What is filtered by; an architecture stands between spaces."""
    architectures = f" {' '.join(entry.architectures)} " if entry.architectures else ""
    return (
        entry.kind,
        entry.licence,
        entry.verified,
        entry.source,
        architectures,
        topic_of(entry),
        content,
    )
