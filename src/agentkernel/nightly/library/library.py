"""The kernel library: storing, finding, withdrawing and pruning kernels, for several processes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from agentkernel.domain.base import sha256_text
from agentkernel.domain.nightly import NightlyRun, RegionStatus
from agentkernel.domain.region import Basis, Kernel, KernelKey
from agentkernel.nightly.library.database import Say, open_library, using
from agentkernel.nightly.library.rows import (
    BY_KEY,
    FULL_QUERY,
    KEY_COLUMNS,
    LINE_QUERY,
    Cell,
    KernelSummary,
    StoredKernel,
    certificate_text,
    key_values,
    read_nights,
    to_checked_line,
    to_line,
    to_row,
    to_stored,
    write_night,
)
from agentkernel.storage.files import read_regular, refuse_strange, write_atomic
from agentkernel.storage.sqlite import transaction


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


LAST, LAST_GREEN = "last", "last-green"


@dataclass(frozen=True)
class KernelMeasurement:
    """What one measurement of a kernel said, or one estimate (`basis`); times in microseconds of
    one call."""

    sha256: str
    signature: str
    gpu: str
    basis: Basis
    night: str
    taken: str
    time_us: float | None
    baseline_us: float | None
    speedup: float | None
    speedup_low: float | None


LIVE_GRACE_S = 3600.0
CHANGED: tuple[RegionStatus, ...] = ("new", "retuned", "withdrawn")
"""Where a region got another kernel, or lost it."""
BASIS_OF_ROW = (
    "case when basis <> '' then basis when gpu like 'estimated:%' then 'estimated' "
    "else 'measured' end"
)
"""What was saved from a damaged file of an older format has no basis of its own."""
PUT_AGAIN = {
    "verified": "max(verified, excluded.verified)",
    "withdrawn": "case when excluded.certificate = certificate "
    "then coalesce(withdrawn, excluded.withdrawn) else excluded.withdrawn end",
}
"""What becomes of a column where the same kernel is put again; the others are replaced."""


class Library:
    """An open library. Any number of processes and threads may read and write at once.

    A failed write raises OutputError and leaves what was there before; damage that is met on the
    way raises LibraryError, and the next opening saves what can be read; `say` then gets one line,
    which `mended` keeps (None: the file was whole).
    Opening raises LibraryError for a newer format and for another program's file.
    """

    def __init__(self, path: Path, say: Say | None = None) -> None:
        self.path = path
        self._db, self._in_use, self.mended = open_library(path, say)
        self._db.row_factory = sqlite3.Row
        self._lock = threading.RLock()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with self._lock:
            self._db.close()
            self._in_use.close()

    def put(self, kernel: Kernel, *, live: Path | None = None, night: str = "") -> None:
        """Keep `kernel`, and its times as a measurement of `night`.

        `live` is the `live.pkl` of its run, which a replay of a live module needs; it is linked or
        copied where it is there. The same text under the same key is one kernel: the later
        `created` stays. What was withdrawn comes back with a later certificate only.
        """
        text = certificate_text(kernel)
        name = sha256_text(text)
        if live is not None and live.is_file():
            self._keep_live(name, live)
        row = to_row(kernel, name)
        with self._writing() as db:
            # A text that was edited since it was put is put right.
            db.execute(
                "insert into certificates values (?, ?) on conflict (sha256) do update "
                "set value = excluded.value where value <> excluded.value",
                (name, text),
            )
            db.execute(_put_statement(row), tuple(row.values()))
            if kernel.time_us is not None or kernel.speedup is not None:
                _measure(db, kernel, night)

    def find(self, key: KernelKey) -> Kernel | None:
        """The newest kernel for `key` that is not withdrawn and belongs together."""
        for row in self._rows(
            f"{FULL_QUERY} where {BY_KEY} and k.withdrawn is null "
            "order by k.created desc, k.id desc",
            *key_values(key),
        ):
            stored = to_stored(row)
            if stored is not None and stored.kernel.withdrawn is None:
                return stored.kernel
        return None

    def has(self, key: KernelKey) -> bool:
        """True where `find` has something to look at: its certificate is not read."""
        rows = self._rows(
            f"select 1 from kernels k where {BY_KEY} and k.withdrawn is null limit 1",
            *key_values(key),
        )
        return bool(rows)

    def withdraw(self, sha256: str, why: str, *, key: KernelKey | None = None) -> int:
        """Give a kernel out no more, under all its keys or one. Answers how many there were.

        A kernel that is withdrawn already keeps its reason."""
        return self._update("withdrawn = ?, withdrawn_at = ?", (why, now()), sha256, key)

    def verified(self, sha256: str, when: str, *, key: KernelKey | None = None) -> int:
        """Note that it was judged again and holds. Answers how many there were."""
        return self._update("verified = ?", (when,), sha256, key)

    def kernels(
        self,
        *,
        signature: str | None = None,
        sha256: str = "",
        withdrawn: bool = True,
        newest: int | None = None,
    ) -> tuple[Kernel, ...]:
        """All kernels, of one signature or whose hash begins with `sha256`, oldest first; of these
        the `newest` at most.

        Without those that this version cannot read (`lines` has them).
        """
        where, values = _where(signature, sha256)
        rows = self._rows(
            f"{FULL_QUERY} where {where} order by k.created desc, k.id desc limit ?",
            *values,
            -1 if newest is None else newest,
        )[::-1]
        found = (stored.kernel for row in rows if (stored := to_stored(row)) is not None)
        return tuple(kernel for kernel in found if withdrawn or kernel.withdrawn is None)

    def lines(self, *, sha256: str = "") -> tuple[KernelSummary, ...]:
        """The kernels whose hash begins with `sha256`, without source and certificate, oldest
        first."""
        where, values = _where(None, sha256)
        rows = self._rows(f"{LINE_QUERY} where {where} order by k.created, k.id", *values)
        return tuple(map(to_line, rows))

    def checked_lines(
        self, *, sha256: str = "", valid: bool = False, newest: int | None = None
    ) -> tuple[KernelSummary, ...]:
        """As `lines`, each compared with its certificate: about 2 ms more a kernel. `valid`: those
        alone that may be given out; `newest`: so many at most."""
        where, values = _where(None, sha256)
        query = f"select k.id from kernels k where {where} order by k.created desc, k.id desc"
        with self._snapshot() as db:  # one at a time: sources and certificates may be gigabytes
            names = db.execute(query, values).fetchall()
            rows = (db.execute(f"{FULL_QUERY} where k.id = ?", tuple(name)) for name in names)
            lines = (to_checked_line(row) for found in rows for row in found)
            kept = (item for item in lines if not (valid and (item.withdrawn or item.unfit)))
            return tuple(islice(kept, newest))[::-1]

    def count(self) -> int:
        """How many kernels and keys there are."""
        return int(self._rows("select count(*) from kernels")[0][0])

    def stored(self, line: KernelSummary) -> StoredKernel | None:
        """A kernel with its certificate as it was put; None: gone, or it cannot be read."""
        where = f"{BY_KEY} and k.sha256 = ?"
        rows = self._rows(f"{FULL_QUERY} where {where}", *key_values(line.key), line.sha256)
        return to_stored(rows[0]) if rows else None

    def live_pickle(self, line: KernelSummary) -> Path | None:
        """The pickle of its live module, where one was put with it."""
        path = self._live_path(line.certificate)
        return path if path.is_file() else None

    def measurements(self, sha256: str) -> tuple[KernelMeasurement, ...]:
        """What was ever measured or estimated of a kernel, oldest first; also of one that was
        pruned."""
        rows = self._rows(
            f"""select sha256, signature, gpu, {BASIS_OF_ROW}, night, taken, time_us, baseline_us,
                speedup, speedup_low from measurements where sha256 = ? order by taken, id""",
            sha256,
        )
        return tuple(KernelMeasurement(*row) for row in rows)

    def save_night(self, night: NightlyRun, exit_code: int | None = None) -> None:
        """Keep a night, finished or not, in place of what was saved of it before.

        `exit_code` is its comparison's: a green night ended with 0. Without one a night is green
        where it ended, no model failed and nothing was withdrawn.
        """
        with self._writing() as db:
            write_night(db, night, exit_code)

    def nights(self, zoo: str | None = None) -> tuple[NightlyRun, ...]:
        """Whole nights, oldest first."""
        return self._nights(zoo)

    def history(self, zoo: str) -> tuple[NightlyRun, ...]:
        """The nights over a zoo, oldest first, with those of their regions alone whose kernel
        changed: what a page needs of them. Whole ones of a large zoo do not fit in memory."""
        return self._nights(zoo, CHANGED)

    def night(
        self, name: str, *, zoo: str | None = None, other_than: str | None = None
    ) -> NightlyRun | None:
        """The night of that id; "last": the last that finished; "last-green": of those that were
        green. Of these two, `zoo` asks for one zoo's and `other_than` leaves one night out.

        None where there is none. Raises LibraryError for one that this version cannot read.
        """
        with self._snapshot() as db:
            if name not in (LAST, LAST_GREEN):
                return next(read_nights(db, [name]), None)
            row = db.execute(
                f"""select id from nights where finished is not null
                    and {"green = 1" if name == LAST_GREEN else "true"}
                    and zoo = coalesce(?, zoo) and id is not ?
                    order by started desc, id desc limit 1""",
                (zoo, other_than),
            ).fetchone()
            return None if row is None else next(read_nights(db, [str(row["id"])]))

    def job(self, key: str) -> str | None:
        """What the finished job with that key left, as JSON; None: it is not done."""
        rows = self._rows("select value from jobs where key = ?", key)
        return str(rows[0]["value"]) if rows else None

    def save_job(
        self, key: str, kind: str, value_json: str, *, started: str = "", worker: str = ""
    ) -> None:
        """Keep what a finished job left; a job that is done again replaces it."""
        with self._writing() as db:
            db.execute(
                "insert or replace into jobs values (?, ?, ?, ?, ?, ?)",
                (key, kind, value_json, started, now(), worker),
            )

    def jobs(self, kind: str | None = None) -> dict[str, str]:
        """Key -> JSON of all finished jobs, or those of one kind, in the order of their ends."""
        rows = self._rows(
            "select key, value from jobs where kind = coalesce(?, kind) order by rowid", kind
        )
        return {str(row["key"]): str(row["value"]) for row in rows}

    def prune(self, rule: PruneRule, *, yes: bool = False) -> PruneResult:
        """What `rule` drops; it is dropped where `yes`, in the same transaction."""
        moment = datetime.now(UTC)
        if not yes:
            with self._snapshot() as db:
                return find_prunable(db, rule, moment)
        with self._writing() as db:
            found = find_prunable(db, rule, moment)
            drop(db, rule, found, moment)
        with self._lock, using(self.path):
            self._db.execute("pragma incremental_vacuum").fetchall()
            self._drop_lives()
        return PruneResult(found.kernels, found.spared, found.nights, found.jobs, dropped=True)

    def _nights(
        self, zoo: str | None, statuses: tuple[RegionStatus, ...] = ()
    ) -> tuple[NightlyRun, ...]:
        with self._snapshot() as db:
            rows = db.execute(
                "select id from nights where zoo = coalesce(?, zoo) order by started, id", (zoo,)
            ).fetchall()
            return tuple(read_nights(db, [str(row["id"]) for row in rows], statuses))

    def _update(
        self, change: str, values: tuple[str, ...], sha256: str, key: KernelKey | None
    ) -> int:
        where = "sha256 = ? and withdrawn is null"
        asked = (*values, sha256)
        if key is not None:
            where += "".join(f" and {name} = ?" for name in KEY_COLUMNS)
            asked += key_values(key)
        with self._writing() as db:
            return db.execute(f"update kernels set {change} where {where}", asked).rowcount

    def _live_path(self, certificate_sha256: str) -> Path:
        return self.path.with_name(f"{self.path.name}.live") / f"{certificate_sha256}.pkl"

    def _keep_live(self, certificate_sha256: str, live: Path) -> None:
        path = self._live_path(certificate_sha256)
        if path.exists():
            return
        with using(self.path):
            path.parent.mkdir(parents=True, exist_ok=True)
            refuse_strange(live)
            # A link costs no room and outlives the run folder.
            with contextlib.suppress(FileExistsError):
                try:
                    os.link(live, path)
                except OSError:
                    part = path.with_suffix(f".{os.getpid()}.part")
                    write_atomic(part, read_regular(live))
                    part.replace(path)

    def _drop_lives(self) -> None:
        """Those whose certificate is gone. Younger ones may belong to a `put` that goes on."""
        known = {row["sha256"] for row in self._rows("select sha256 from certificates")}
        limit = datetime.now(UTC).timestamp() - LIVE_GRACE_S
        for path in self._live_path("").parent.glob("*.p*"):
            if path.stem not in known and path.stat().st_ctime < limit:
                path.unlink(missing_ok=True)

    def _rows(self, statement: str, *values: object) -> list[sqlite3.Row]:
        with self._lock, using(self.path):
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, using(self.path), transaction(self._db):
            yield self._db

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """Several statements that see one state of the file."""
        with self._lock, using(self.path):
            self._db.execute("begin")
            try:
                yield self._db
            finally:
                if self._db.in_transaction:
                    self._db.execute("commit")


def now() -> str:
    """The time in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _put_statement(row: dict[str, Cell]) -> str:
    names = ", ".join(row)
    marks = ", ".join("?" for _ in row)
    changed = [name for name in row if name not in ("sha256", *KEY_COLUMNS)]
    sets = ", ".join(f"{name} = {PUT_AGAIN.get(name, f'excluded.{name}')}" for name in changed)
    return (
        f"insert into kernels ({names}) values ({marks}) "
        f"on conflict (sha256, {', '.join(KEY_COLUMNS)}) do update set {sets} "
        "where excluded.created >= created"
    )


def _measure(db: sqlite3.Connection, kernel: Kernel, night: str) -> None:
    db.execute(
        """insert into measurements (sha256, signature, gpu, basis, night, taken, time_us,
           baseline_us, speedup, speedup_low) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            kernel.sha256,
            kernel.key.signature,
            kernel.key.gpu,
            kernel.basis,
            night,
            kernel.created,
            kernel.time_us,
            kernel.baseline_us,
            kernel.speedup,
            kernel.speedup_low,
        ),
    )


def _where(signature: str | None, sha256: str) -> tuple[str, list[str]]:
    parts, values = ["true"], []
    if signature is not None:
        parts.append("k.signature = ?")
        values.append(signature)
    if sha256:
        # "g" comes after all hexadecimal digits.
        parts.append("k.sha256 >= ? and k.sha256 < ?")
        values += [sha256, f"{sha256}g"]
    return " and ".join(parts), values
