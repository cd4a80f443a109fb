"""What does the store of all entries take and answer with?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from agentkernel.domain.knowledge import Entry

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
