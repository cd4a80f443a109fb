"""A nightly run: its start, its resumption after a kill, and its final table."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol

from pydantic import Field, ValidationError

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import AgentKernelError, RunBusy
from agentkernel.domain.nightly import LostJob, ModelRow, NightlyRun, RegionRow, Zoo
from agentkernel.domain.region import Basis, Region
from agentkernel.domain.settings import Settings
from agentkernel.nightly.library.library import now
from agentkernel.nightly.scheduler.engine import Engine, Work
from agentkernel.nightly.scheduler.jobs import (
    KernelStore,
    NightRequest,
    Ranking,
    ZooPart,
    relevant_settings,
)
from agentkernel.nightly.scheduler.region_outcomes import RegionOutcome
from agentkernel.nightly.scheduler.scheduler import ENDED_UNDER_WAY, Scheduler
from agentkernel.storage.files import explain_write_failure, make_folder, open_append


def night_of(
    scheduler: Scheduler,
    *,
    zoo: str,
    zoo_sha256: str,
    started: str,
    finished: str | None,
    versions: Versions,
) -> NightlyRun:
    """The night as it stands; `finished` None: it goes on."""
    asked = scheduler.question
    return NightlyRun(
        id=asked.night,
        zoo=zoo,
        zoo_sha256=zoo_sha256,
        target=asked.target,
        gpu=scheduler.gpu,
        workers=asked.workers,
        started=started,
        finished=finished,
        versions=versions,
        budget_s=asked.budget_s,
        wall_s=round(scheduler.wall_s, 3),
        gpu_s=round(scheduler.seconds, 3),
        models=model_rows(scheduler),
        regions=region_rows(scheduler),
        lost=tuple(scheduler.lost_jobs),
    )


def model_rows(scheduler: Scheduler) -> tuple[ModelRow, ...]:
    """One a model, in the zoo's order; a model without a row says why."""
    rows = []
    for part in scheduler.question.parts:
        name = part.model.name
        row = scheduler.rows.get(name)
        if row is None:
            basis: Basis = "measured" if scheduler.gpu is not None else "estimated"
            why = scheduler.errors.get(name, "not done yet")
            row = ModelRow(
                name=name,
                weight=part.model.weight,
                dtype=part.model.dtype or "",
                basis=basis,
                error=why,
            )
        rows.append(row)
    return tuple(rows)


def region_rows(scheduler: Scheduler) -> tuple[RegionRow, ...]:
    """Every region that was worked on or was to be, the most promising first."""
    named = {region.signature for region in scheduler.order} | set(scheduler.decided)
    regions = [scheduler.regions[signature] for signature in named]
    unreached = RegionOutcome(status="unreached", reason="the night ended before it")
    ordered = sorted(regions, key=lambda item: (-item.score, item.signature))
    return tuple(_row(item, scheduler.decided.get(item.signature, unreached)) for item in ordered)


def _row(region: Region, decided: RegionOutcome) -> RegionRow:
    return RegionRow(
        signature=region.signature,
        name=region.name,
        ops=region.ops,
        shapes=region.shapes,
        uses=region.uses,
        basis=region.basis,
        share=region.share,
        headroom=region.headroom,
        eager_us=region.eager_us,
        bound_us=region.bound_us,
        flops=region.flops,
        bytes_min=region.bytes_min,
        status=decided.status,
        reason=decided.reason,
        sha256=decided.sha256,
        parent=decided.parent,
        run=decided.run,
        time_us=decided.time_us,
        speedup=decided.speedup,
        speedup_low=decided.speedup_low,
        speedup_high=decided.speedup_high,
        spent_s=round(decided.seconds, 3),
    )


OPENED = "opened"
"""Kind of the record of a night that has begun."""
NOTED_EVERY_S = 5.0
"""Seconds between two notes of a night's clock: what a kill may take off it."""
Watch = Callable[[Scheduler], None]
Report = Callable[[NightlyRun], int | None]
"""What is made of a finished night, and the exit code that it comes to (None: nobody compared)."""


class NightStore(KernelStore, Protocol):
    """The library, with its nights."""

    def save_night(self, night: NightlyRun, exit_code: int | None = None) -> None: ...


@dataclass(frozen=True)
class NightOptions:
    """What a call asks for: `runs` will hold the runs of drafts, a folder a night; `locks` tells
    calls of one machine apart. `gpu` is the one that measures here."""

    zoo: Zoo
    parts: tuple[ZooPart, ...]
    target: str
    settings: Settings
    gpu: str | None
    versions: Versions
    locks: Path
    budget_s: float | None = None
    reserve: float = 0.15

    @cached_property
    def key(self) -> str:
        """Identity of the question: the same call, over the same models, with the same versions.
        It is asked at each change of a night, and goes through all models."""
        words = (
            self.zoo.name,
            *(f"{part.model.model_dump_json()} {part.sha256}" for part in self.parts),
            self.target,
            relevant_settings(self.settings),
            str(self.gpu),
            self.versions.model_dump_json(),
            str(self.budget_s),
        )
        return sha256_text("\n".join(words))[:32]

    @property
    def zoo_sha256(self) -> str:
        """Of all models."""
        return sha256_text("\n".join(part.sha256 for part in self.parts))


class NightMarker(Frozen):
    """A night that has begun. `running`: key and name of the jobs that nobody has answered."""

    id: str
    started: str
    wall_s: float = 0.0
    running: dict[str, str] = Field(default_factory=dict)
    lost: tuple[LostJob, ...] = ()
    finished: bool = False


def run_night(
    wanted: NightOptions,
    night_store: NightStore,
    engine: Engine,
    work: Work,
    ranking: Ranking,
    watch: Watch = lambda scheduler: None,
    report: Report = lambda night: None,
) -> NightlyRun:
    """Do the night that `wanted` asks for, or go on with the one that a kill left.

    The night has finished once `report` is through with it: before, no other night is compared with
    it, and after a kill the same call reports it once more. Raises RunBusy where another call works
    on the same one, and what the engine and `report` raise: the same call goes on then.
    """
    with _alone(wanted):
        opened = _open(wanted, night_store)
        scheduler = _scheduler(wanted, opened, night_store, engine, ranking)

        noting = threading.Lock()  # an older note never replaces a newer one

        def note(finished: bool = False) -> None:
            with noting:
                marker = opened.evolve(
                    wall_s=round(scheduler.wall_s, 3),
                    running={job.key: job.name for job in list(scheduler.running.values())},
                    lost=tuple(scheduler.lost_jobs),
                    finished=finished,
                )
                night_store.save_job(_marker(wanted), OPENED, marker.model_dump_json())

        def changed() -> None:
            note()
            watch(scheduler)

        scheduler.changed = changed
        changed()
        with _clock_noted(note):
            engine.run(scheduler, work)
            night = night_of(
                scheduler,
                zoo=wanted.zoo.name,
                zoo_sha256=wanted.zoo_sha256,
                started=opened.started,
                finished=now(),
                versions=wanted.versions,
            )
            night_store.save_night(night.evolve(finished=None))
            night_store.save_night(night, report(night))
        note(finished=True)
        return night


def _scheduler(
    wanted: NightOptions,
    opened: NightMarker,
    night_store: NightStore,
    engine: Engine,
    ranking: Ranking,
) -> Scheduler:
    runs = f"{wanted.settings.runs}/{opened.id}"
    question = NightRequest(
        night=opened.id,
        parts=wanted.parts,
        target=wanted.target,
        settings=wanted.settings.evolve(runs=runs),
        gpu=wanted.gpu,
        torch=wanted.versions.torch,
        triton=wanted.versions.triton,
        workers=engine.workers,
        budget_s=wanted.budget_s,
        reserve=wanted.reserve,
    )
    return Scheduler(
        question, night_store, ranking, spent_s=opened.wall_s, lost_jobs=list(opened.lost)
    )


def _open(wanted: NightOptions, night_store: NightStore) -> NightMarker:
    """The night that a kill left, with what it was at; else a new one."""
    text = night_store.job(_marker(wanted))
    if text is not None:
        try:
            left = NightMarker.model_validate_json(text)
        except ValidationError:
            left = NightMarker(id="", started="", finished=True)
        if not left.finished:
            cut_off = [name for key, name in left.running.items() if night_store.job(key) is None]
            lost = (*left.lost, *(LostJob(job=name, why=ENDED_UNDER_WAY) for name in cut_off))
            return left.evolve(running={}, lost=lost)
    moment = datetime.now(UTC)
    name = f"{moment:%Y%m%d-%H%M%S}-{sha256_text(f'{moment.isoformat()} {wanted.key}')[:4]}"
    return NightMarker(id=name, started=moment.isoformat(timespec="seconds"))


@contextmanager
def _clock_noted(note: Callable[[], None]) -> Iterator[None]:
    """Meanwhile `note` is called every few seconds, for jobs take minutes, and once more at the
    end, whatever brought it: the next call's clock goes on from there."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(NOTED_EVERY_S):
            with suppress(AgentKernelError):  # the next answer meets it too, and is told
                note()

    thread = threading.Thread(target=keep, name="night-clock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(AgentKernelError):  # what ended the night is told, not this
            note()


def _marker(wanted: NightOptions) -> str:
    return f"{OPENED}:{wanted.key}"


@contextmanager
def _alone(wanted: NightOptions) -> Iterator[None]:
    """Be the only call that works on this night. Raises RunBusy."""
    make_folder(wanted.locks)
    path = wanted.locks / f"night-{wanted.key}.lock"
    with explain_write_failure(path):
        file = open_append(path)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunBusy(
                f"Another process works on this night over zoo {wanted.zoo.name!r}. Expected that "
                "nobody does. Next: wait for it, or end it; the same command then goes on."
            ) from error
        yield
