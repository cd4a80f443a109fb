"""How is a night written so that its trend is read without its regions?"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pydantic import ValidationError

from agentkernel.domain.errors import LibraryError, one_line
from agentkernel.domain.night import ModelRow, NightlyRun, RegionRow, RegionStatus
from agentkernel.domain.region import Basis


@dataclass(frozen=True)
class ModelSummary:
    """One model's speedups in one night; `estimated` is arithmetic alone."""

    name: str
    vs_eager: float | None
    vs_compile: float | None
    estimated: float | None


@dataclass(frozen=True)
class NightSummary:
    """One night of a trend. The speedups are geometric means over the models that have one, None
    where none has; `finished` None: it was killed, or still runs."""

    id: str
    started: str
    finished: str | None
    green: bool
    basis: Basis
    vs_eager: float | None
    vs_compile: float | None
    estimated: float | None
    models: tuple[ModelSummary, ...]


def is_green(night: NightlyRun, exit_code: int | None) -> bool:
    """It ended, with `exit_code` 0; without one: no model failed, nothing was withdrawn."""
    if night.finished is None:
        return False
    if exit_code is not None:
        return exit_code == 0
    failed = any(item.error or item.verified is False for item in night.models)
    return not failed and all(item.status != "withdrawn" for item in night.regions)


def write_night(db: sqlite3.Connection, night: NightlyRun, exit_code: int | None) -> None:
    """Within a transaction: the night in place of what was saved of it before."""
    for table in ("night_models", "night_regions"):
        db.execute(f"delete from {table} where night = ?", (night.id,))
    head = night.model_copy(update={"models": (), "regions": ()}).model_dump_json()
    db.execute(
        """insert into nights values (?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set
           zoo = excluded.zoo, started = excluded.started, finished = excluded.finished,
           green = excluded.green, basis = excluded.basis, value = excluded.value""",
        (
            night.id,
            night.zoo,
            night.started,
            night.finished,
            is_green(night, exit_code),
            night.basis,
            head,
        ),
    )
    db.executemany(
        "insert into night_models values (?, ?, ?, ?, ?, ?, ?)",
        (
            (
                night.id,
                number,
                item.name,
                item.vs_eager.value if item.vs_eager else None,
                item.vs_compile.value if item.vs_compile else None,
                item.estimated_speedup,
                item.model_dump_json(),
            )
            for number, item in enumerate(night.models)
        ),
    )
    db.executemany(
        "insert into night_regions values (?, ?, ?, ?, ?)",
        (
            (night.id, number, item.signature, item.status, item.model_dump_json())
            for number, item in enumerate(night.regions)
        ),
    )


def read_nights(
    db: sqlite3.Connection, ids: Sequence[str], statuses: Sequence[RegionStatus] = ()
) -> Iterator[NightlyRun]:
    """In the order of `ids`; whole, or with the regions of some `statuses` alone.

    Raises LibraryError for one that this version cannot read.
    """
    only = f"and status in ({', '.join('?' for _ in statuses)})" if statuses else ""
    for night_id in ids:
        row = db.execute("select value from nights where id = ?", (night_id,)).fetchone()
        if row is None:
            continue
        try:
            head = NightlyRun.model_validate_json(row[0])
            models = tuple(map(ModelRow.model_validate_json, _values(db, "night_models", night_id)))
            rows = _values(db, "night_regions", night_id, only, statuses)
            regions = tuple(map(RegionRow.model_validate_json, rows))
        except ValidationError as error:
            raise LibraryError(
                f"The night {night_id!r} cannot be read: {one_line(error, 120)}. Expected one "
                "that this version wrote. Next: read it with the version that did."
            ) from error
        yield head.model_copy(update={"models": models, "regions": regions})


def read_trend(db: sqlite3.Connection, zoo: str) -> tuple[NightSummary, ...]:
    """Oldest first; reads no JSON."""
    rows = db.execute(
        """select n.id, n.started, n.finished, n.green, n.basis, m.name, m.vs_eager, m.vs_compile,
           m.estimated from nights n left join night_models m on m.night = n.id
           where n.zoo = ? order by n.started, n.id, m.number""",
        (zoo,),
    )
    return tuple(_line(list(group)) for _, group in groupby(rows, key=lambda row: row["id"]))


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there and positive; None where none is."""
    logs = [math.log(value) for value in values if value is not None and value > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _line(rows: Sequence[sqlite3.Row]) -> NightSummary:
    first = rows[0]
    models = tuple(
        ModelSummary(str(row["name"]), row["vs_eager"], row["vs_compile"], row["estimated"])
        for row in rows
        if row["name"] is not None
    )
    return NightSummary(
        id=str(first["id"]),
        started=str(first["started"]),
        finished=first["finished"],
        green=bool(first["green"]),
        basis="measured" if first["basis"] == "measured" else "estimated",
        vs_eager=geometric_mean(item.vs_eager for item in models),
        vs_compile=geometric_mean(item.vs_compile for item in models),
        estimated=geometric_mean(item.estimated for item in models),
        models=models,
    )


def _values(
    db: sqlite3.Connection, table: str, night_id: str, only: str = "", more: Sequence[str] = ()
) -> Iterator[str]:
    rows = db.execute(
        f"select value from {table} where night = ? {only} order by number", (night_id, *more)
    )
    return (str(row[0]) for row in rows)
