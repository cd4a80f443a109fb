"""Which kernels and nights may be dropped, and which must stay?"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agentkernel.nightly.library.rows import (
    FULL_QUERY,
    LINE_QUERY,
    KernelSummary,
    to_line,
    to_stored,
)


@dataclass(frozen=True)
class PruneRule:
    """What is to go; a kernel goes where any of it holds. The default drops nothing.

    `older_than_days`: neither made nor verified since; `keep_torch` and `keep_triton`: of another
    version than these; `keep_gpu`: measured on another GPU. The newest valid kernel of each
    signature stays in spite of all that, unless `newest_too`. `nights_older_than_days`: nights with
    their rows, and jobs that finished before; each zoo's last night and last green one stay.
    """

    older_than_days: float | None = None
    withdrawn: bool = False
    keep_torch: str | None = None
    keep_triton: str | None = None
    keep_gpu: str | None = None
    newest_too: bool = False
    nights_older_than_days: float | None = None

    @property
    def empty(self) -> bool:
        """It names nothing that is to go."""
        return self == PruneRule(newest_too=self.newest_too)


@dataclass(frozen=True)
class PrunableKernel:
    """A kernel that goes, and why."""

    kernel: KernelSummary
    why: str


@dataclass(frozen=True)
class PruneResult:
    """What would go, or went where `dropped`. `spared`: kernels that only stay because they are
    the newest valid ones of their signature."""

    kernels: tuple[PrunableKernel, ...]
    spared: int
    nights: tuple[str, ...]
    jobs: int
    dropped: bool = False


def find_prunable(db: sqlite3.Connection, rule: PruneRule, now: datetime) -> PruneResult:
    """What `rule` says of the file as it stands."""
    lines = [to_line(row) for row in db.execute(f"{LINE_QUERY} order by k.id")]
    reasons = {line.row: why for line in lines if (why := _reason(line, rule, now))}
    kept = set() if rule.newest_too or not reasons else _newest_valid(db)
    nights = _old_nights(db, rule, now)
    jobs = 0
    if rule.nights_older_than_days is not None:
        query = "select count(*) from jobs where finished < ?"
        jobs = db.execute(query, (_before(now, rule.nights_older_than_days),)).fetchone()[0]
    return PruneResult(
        kernels=tuple(
            PrunableKernel(line, reasons[line.row])
            for line in lines
            if line.row in reasons and line.row not in kept
        ),
        spared=len(kept & reasons.keys()),
        nights=nights,
        jobs=int(jobs),
    )


def drop(db: sqlite3.Connection, rule: PruneRule, found: PruneResult, now: datetime) -> None:
    """Within the transaction in which `found` was found."""
    db.executemany("delete from kernels where id = ?", [(k.kernel.row,) for k in found.kernels])
    db.execute(
        "delete from certificates where sha256 not in (select certificate from kernels)"
        if found.kernels
        else "select 1"
    )
    for table, column in (("night_models", "night"), ("night_regions", "night"), ("nights", "id")):
        db.executemany(f"delete from {table} where {column} = ?", [(n,) for n in found.nights])
    if rule.nights_older_than_days is not None:
        limit = _before(now, rule.nights_older_than_days)
        db.execute("delete from jobs where finished < ?", (limit,))


def _reason(line: KernelSummary, rule: PruneRule, now: datetime) -> str | None:
    if rule.withdrawn and line.withdrawn is not None:
        return f"withdrawn: {line.withdrawn}"
    if rule.older_than_days is not None:
        seen = max(_moment(line.created), _moment(line.verified))
        if seen < now - timedelta(days=rule.older_than_days):
            return f"last verified {seen:%Y-%m-%d}"
    key = line.key
    for what, has, keep in (
        ("torch", key.torch, rule.keep_torch),
        ("triton", key.triton, rule.keep_triton),
        ("GPU", key.gpu, rule.keep_gpu),
    ):
        if keep is not None and has != keep:
            return f"of {what} {has}"
    return None


def _newest_valid(db: sqlite3.Connection) -> set[int]:
    """Of each signature the row that was made last among those that may be given out."""
    newest: dict[str, int] = {}
    query = f"{FULL_QUERY} where k.withdrawn is null order by k.created desc, k.id desc"
    for row in db.execute(query):
        if row["signature"] in newest:
            continue
        stored = to_stored(row)
        if stored is not None and stored.kernel.withdrawn is None:
            newest[str(row["signature"])] = int(row["id"])
    return set(newest.values())


def _old_nights(db: sqlite3.Connection, rule: PruneRule, now: datetime) -> tuple[str, ...]:
    if rule.nights_older_than_days is None:
        return ()
    kept: set[str] = set()
    for condition in ("finished is not null", "green = 1"):
        rows = db.execute(
            f"select id, max(started) from nights where {condition} group by zoo"
        ).fetchall()
        kept.update(str(row["id"]) for row in rows)
    rows = db.execute(
        "select id from nights where started < ? order by started",
        (_before(now, rule.nights_older_than_days),),
    ).fetchall()
    return tuple(str(row["id"]) for row in rows if row["id"] not in kept)


def _before(now: datetime, days: float) -> str:
    return (now - timedelta(days=days)).isoformat(timespec="seconds")


def _moment(text: str) -> datetime:
    """Without a date that can be read: now, so that it is not old."""
    if not text:
        return datetime.min.replace(tzinfo=UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
