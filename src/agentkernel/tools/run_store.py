"""Run folders: created, found, opened, listed and locked."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.candidate import Candidate
from agentkernel.domain.certificate import Versions
from agentkernel.domain.errors import OutputError, RunBusy, RunNotFound
from agentkernel.domain.problem import Problem
from agentkernel.domain.settings import Settings
from agentkernel.storage.files import (
    explain_write_failure,
    fit_file_name,
    lock_open_file,
    make_folder,
    make_own_folder,
    open_append,
    read_regular,
    read_regular_text,
    write_atomic,
)
from agentkernel.storage.records import Records, open_records, read_records
from agentkernel.tools.own_files import LIVE, read_live, write_live
from agentkernel.tools.problem.loading import LoadedProblem, restore_problem
from agentkernel.tools.targets import ResolvedTarget, versions_of

LAST = "last"
"""Names the newest run."""
SHOWN_RUNS = 3
BUSY_S = 10.0
"""How long a run may still be held by a process that is about to end."""
SESSION_FILE = "session.sqlite"
"""The file of a session's folder, which lies among the runs of its steps."""
USES_FILE = ".uses"
"""A number for each time that a run or session was begun or gone on with, above all those that its
neighbours had: a clock may be set back."""
MOST_USES = 1_000_000
"""Bytes of it, one line of some ten for each use."""
RUN_NAME = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")


class Manifest(Frozen):
    """`run.json`: all that is needed to run it again. `target` is the name in force, never None."""

    format: Literal[1] = 1
    id: str
    created: str
    problem: Problem
    settings: Settings
    target: str
    note: str
    versions: Versions
    judge_sha256: str
    flags: tuple[str, ...] = ()
    out: str | None = None
    live_sha256: str | None = None
    """Of the pickle of a live module, weights and all."""
    judge_key: str | None = None
    """What the seeds of the run's judgements are drawn with; None in runs of before. Whoever knows
    it can tell what a file of this run will be asked."""
    host: str | None = None
    """The machine that judges and measures; None: the run's own."""


class RunSummary(Frozen):
    """A line of `agentkernel runs`; `error` says why a folder cannot be read."""

    id: str
    folder: str
    created: str = ""
    problem: str = ""
    target: str = ""
    status: str = "unfinished"
    error: str | None = None
    began: bool = True
    """False where the check of its inputs ended it, before anything was tried."""


@dataclass(frozen=True)
class RunStore:
    """An open run folder."""

    folder: Path
    manifest: Manifest
    records: Records

    @property
    def id(self) -> str:
        """The run's name, which is its folder's."""
        return self.manifest.id

    @property
    def checkpoint_path(self) -> Path:
        """LangGraph's checkpoints."""
        return self.folder / "checkpoint.sqlite"

    @property
    def result_path(self) -> Path:
        """The final result as JSON; absent while the run is unfinished."""
        return self.folder / "result.json"

    @property
    def repaired(self) -> tuple[str, ...]:
        """What was lost of its records, a line each."""
        return self.records.losses()

    def problem(self) -> LoadedProblem:
        """The problem as it was when the run began."""
        live = self.manifest.problem.origin == "live"
        value = read_live(self.folder / LIVE) if live else None
        return restore_problem(self.manifest.problem, value)

    def write_candidate(self, candidate: Candidate) -> Path:
        """Keep the source as `candidates/<id>.py`."""
        path = self.folder / "candidates" / f"{candidate.id}.py"
        if not path.is_file():
            with explain_write_failure(path):
                make_own_folder(path.parent)
            write_atomic(path, candidate.source)
        return path

    def close(self) -> None:
        """Close the database."""
        self.records.close()


@contextmanager
def lock_run(folder: Path, wait_s: float = BUSY_S) -> Iterator[None]:
    """Be the only process that works on the run in `folder`; one that was killed holds it for the
    moment until the system has ended it. Raises RunBusy after `wait_s`."""
    busy = RunBusy(
        f"Another process works on run {folder.name!r}. Expected a run that nobody works on. "
        "Next: wait for it, or end it and resume."
    )
    with explain_write_failure(folder / "lock"):
        file = open_append(folder / "lock")
    with file:
        with explain_write_failure(folder / "lock"):
            lock_open_file(file, busy, wait_s)
        yield


class WorkAt(NamedTuple):
    """Who works on a run, and at what: the process, None where it has not said so yet, and the node
    with its round, "" between two of them."""

    pid: int | None
    stage: str


def work_at(store: RunStore) -> WorkAt | None:
    """Who works on the run now; None where nobody holds it. Changes nothing."""
    path = store.folder / "lock"
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return WorkAt(store.records.last_pid(), _stage(store.records.events()))
    except OSError:
        return None
    return None


class _StageEvent(Frozen):
    model_config = Frozen.model_config | {"extra": "ignore"}
    kind: str
    node: str = ""
    round: int = 0


def _stage(events: Sequence[str]) -> str:
    """The node that began last, unless it ended."""
    for text in reversed(events):
        event = _StageEvent.model_validate_json(text)
        if event.kind == "node_finished":
            return ""
        if event.kind == "node_started":
            return f"{event.node} of round {event.round}"
    return "start"


def _judge_key(runs: Path, replayed: str | None) -> str:
    """A new one; that of the run whose answers are replayed, since what its models were told of
    verdicts comes from what was asked."""
    if replayed is not None:
        with contextlib.suppress(RunNotFound):
            known = read_manifest(find_run(runs, replayed)).judge_key
            if known is not None:
                return known
    return secrets.token_hex(16)


def create_run(
    loaded: LoadedProblem,
    settings: Settings,
    resolved: ResolvedTarget,
    *,
    judge_sha256: str,
    flags: tuple[str, ...] = (),
    out: str | None = None,
    more: Mapping[str, str] | None = None,
) -> RunStore:
    """Make `<name>-<UTC time>-<4 hex>/` in the settings' `runs`, complete or not at all. Raises
    OutputError.

    `more`: path below the folder -> text, of what else the run begins with.
    """
    runs = Path(settings.runs)
    make_folder(runs)
    now = datetime.now(UTC)
    run_id = f"{plain_name(loaded.problem.name) or 'run'}-{stamp(now)}"
    manifest = Manifest(
        id=run_id,
        created=now.isoformat(timespec="seconds"),
        problem=loaded.problem,
        settings=settings,
        target=resolved.target.name,
        note=resolved.note,
        versions=versions_of(resolved),
        host=resolved.host,
        judge_sha256=judge_sha256,
        flags=flags,
        out=out,
        judge_key=_judge_key(runs, settings.models.replay),
    )
    folder = runs / run_id
    unfinished = runs / f".{run_id}.new"
    try:
        manifest = _fill(unfinished, manifest, loaded, more or {})
        note_use(unfinished)
        with explain_write_failure(folder):
            unfinished.rename(folder)
    except OutputError:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return RunStore(folder, manifest, Records(folder / "run.sqlite"))


def extend_run(store: RunStore, limit_s: float) -> RunStore:
    """`store` with a time limit of `limit_s` wall seconds in all sessions together, unfinished
    again: its loop begins anew, and finds what was drafted, judged and timed in the records. Raises
    OutputError, and RunBusy where another process works on it."""
    budget = store.manifest.settings.budget.evolve(time_s=limit_s)
    manifest = store.manifest.evolve(settings=store.manifest.settings.evolve(budget=budget))
    with lock_run(store.folder), explain_write_failure(store.folder):
        write_atomic(store.folder / "run.json", manifest.model_dump_json(indent=2) + "\n")
        # The result comes last: without it the run counts as unfinished.
        for suffix in ("", "-wal", "-shm"):
            path = store.checkpoint_path
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        store.result_path.unlink(missing_ok=True)
    return replace(store, manifest=manifest)


def plain_name(name: str) -> str:
    """Small letters, digits and hyphens of `name`, as many as the name of a folder may have."""
    return fit_file_name(re.sub(r"[^a-z0-9]+", "-", name.lower())).strip("-")


def stamp(now: datetime) -> str:
    """The end of a folder's name: time, and chance for those of one second."""
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class Uses(NamedTuple):
    """The numbers of the first and the last use of a run or session; 0: not noted."""

    first: int = 0
    last: int = 0


def note_use(folder: Path) -> None:
    """Note that a run or session is now begun, or gone on with. Raises OutputError."""
    path = folder / USES_FILE
    with explain_write_failure(path):
        newest = max((uses(Path(item)).last for item in _folders(folder.parent)), default=0)
        with open_append(path) as file:
            # A line break comes first too: it ends what a kill left of a line.
            file.write(f"\n{newest + 1}\n".encode())


def uses(folder: Path) -> Uses:
    """When a run or session was used, among its neighbours; nothing where that cannot be read."""
    try:
        numbers = [int(line) for line in read_regular(folder / USES_FILE, MOST_USES).split()]
    except (OSError, ValueError):
        return Uses()
    return Uses(numbers[0], numbers[-1]) if numbers else Uses()


def _folders(runs: Path) -> list[str]:
    try:
        with os.scandir(runs) as entries:
            return [item.path for item in entries if os.path.isdir(item.path)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _fill(
    folder: Path, manifest: Manifest, loaded: LoadedProblem, more: Mapping[str, str]
) -> Manifest:
    """Write all that a run begins with; the manifest as it was written."""
    with explain_write_failure(folder):
        (folder / "candidates").mkdir(parents=True)
    write_atomic(folder / "problem.py", loaded.problem.source)
    if loaded.live is not None:
        digest = write_live(folder, loaded.live, loaded.live_inputs)
        manifest = manifest.evolve(live_sha256=digest)
    for name, text in more.items():
        with explain_write_failure(folder):
            (folder / name).parent.mkdir(exist_ok=True)
        write_atomic(folder / name, text)
    write_atomic(folder / "run.json", manifest.model_dump_json(indent=2) + "\n")
    # Here already, so that a run without it has lost it.
    Records(folder / "run.sqlite").close()
    return manifest


def find_run(runs: Path, run: str) -> Path:
    """The folder of `run`: a path, an id, the unique beginning of one, or "last"."""
    if (Path(run) / "run.json").is_file():
        return Path(run)
    known = run_folders(runs)
    if run == LAST and known:
        return known[-1]
    matches = [item for item in known if item.name == run] or [
        item for item in known if item.name.startswith(run)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(item.name for item in matches)
        raise RunNotFound(f"Run {run!r} is ambiguous: {names}. Next: give more of the name.")
    names = ", ".join(item.name for item in known[-SHOWN_RUNS:]) or "none yet"
    which = f"The newest of {len(known)}" if len(known) > SHOWN_RUNS else "Known"
    raise RunNotFound(
        f"No run {run!r} in {str(runs)!r}. {which}: {names}. Next: see 'agentkernel runs'."
    )


def find_kernel_run(runs: Path, run: str) -> Path:
    """As `find_run`; "last" is the newest run that handed a kernel over, where there is one."""
    if run == LAST and not (Path(run) / "run.json").is_file():
        for folder in reversed(run_folders(runs)):
            found = _status_line(folder / "result.json")
            if found is not None and found.candidate is not None:
                return folder
    return find_run(runs, run)


def passed_over(runs: Path, run: str, found: Path) -> str:
    """The newest run, where `found` stands for "last" and is an older one; else ""."""
    newest = run_folders(runs)[-1:] if run == LAST else ()
    return next((item.name for item in newest if item.name != found.resolve().name), "")


def open_run(runs: Path, run: str) -> RunStore:
    """Open a run to work on it; what was lost of a damaged `run.sqlite` is in `repaired`. Raises
    RunNotFound with one clear line, RunBusy where it is damaged and another process works on it."""
    folder = find_run(runs, run)
    manifest = read_manifest(folder)
    store = RunStore(
        folder, manifest, open_records(folder / "run.sqlite", lambda: lock_run(folder))
    )
    note_use(folder)
    return store


def read_run(runs: Path, run: str) -> RunStore:
    """Read a run: nothing of its folder is changed. Raises RunNotFound with one clear line."""
    folder = find_run(runs, run)
    manifest = read_manifest(folder)
    return RunStore(folder, manifest, read_records(folder / "run.sqlite"))


def set_aside(path: Path) -> Path:
    """Rename a corrupt database (with its journal files) so that a new one can take its place."""
    target = path.with_name(f"{path.name}.corrupt")
    with explain_write_failure(path):
        path.replace(target)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    return target


def read_manifest(folder: Path) -> Manifest:
    """`run.json` of a run folder. Raises RunNotFound where it is missing or corrupt."""
    path = folder / "run.json"
    try:
        return Manifest.model_validate_json(read_regular_text(path))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        problem = "is missing or unreadable" if isinstance(error, OSError) else "is corrupt"
        raise RunNotFound(
            f"Run {folder.name!r}: {str(path)!r} {problem}. Expected what optimize wrote. "
            "Its candidates and results are still in the folder. Next: optimize the module again."
        ) from error


def run_folders(runs: Path) -> tuple[Path, ...]:
    """All run folders below `runs` in the order in which they were begun; those of which that was
    not noted come first, by the time in their names, those of one second by when their `run.json`
    was written. Sessions and other folders are none."""
    found = [Path(item) for item in _folders(runs)]
    folders = [item for item in found if not item.name.startswith(".") and _is_run(item)]
    return tuple(sorted(folders, key=_age))


def _is_run(folder: Path) -> bool:
    """A folder that is named like a run was one, though its manifest is gone."""
    if os.path.exists(folder / "run.json"):
        return True
    named = RUN_NAME.search(folder.name) is not None
    return named and not os.path.exists(folder / SESSION_FILE)


def _age(folder: Path) -> tuple[int, str, int, str]:
    match = re.search(r"\d{8}-\d{6}", folder.name)
    written = 0
    with contextlib.suppress(OSError):
        written = (folder / "run.json").stat().st_mtime_ns
    return uses(folder).first, match.group() if match else "", written, folder.name


def list_runs(runs: Path) -> tuple[RunSummary, ...]:
    """One summary a folder; what cannot be read says so and hides nothing else."""
    return tuple(_summary(folder) for folder in run_folders(runs))


def _summary(folder: Path) -> RunSummary:
    try:
        manifest = read_manifest(folder)
    except RunNotFound as error:
        return RunSummary(id=folder.name, folder=str(folder), status="corrupt", error=str(error))
    return RunSummary(
        id=manifest.id,
        folder=str(folder),
        created=manifest.created,
        problem=manifest.problem.name,
        target=manifest.target,
        status=_status(folder / "result.json"),
        began=not _failed_at_once(folder),
    )


class _StatusLine(Frozen):
    model_config = Frozen.model_config | {"extra": "ignore"}
    status: str
    interrupted: bool = False
    candidate: str | None = None
    drafts: int = 0


def _status_line(path: Path) -> _StatusLine | None:
    with contextlib.suppress(OSError, UnicodeDecodeError, ValidationError):
        return _StatusLine.model_validate_json(read_regular_text(path))
    return None


def is_unfinished(folder: Path) -> bool:
    """Whether `folder` is that of a run that has not come to its end: it is at work, was
    interrupted, or was killed."""
    found = _status_line(folder / "result.json")
    return (folder / "checkpoint.sqlite").is_file() and (found is None or found.interrupted)


def _failed_at_once(folder: Path) -> bool:
    """Whether the run failed for good with nothing drafted, as where its inputs do not fit."""
    found = _status_line(folder / "result.json")
    return (
        found is not None
        and found.status == "failed"
        and found.drafts == 0
        and not (found.interrupted)
    )


def _status(path: Path) -> str:
    found = _status_line(path)
    if found is None:
        return "unfinished"
    early = found.interrupted and found.status != "failed"
    if early and found.status.startswith("kept"):
        return "interrupted"
    return f"{found.status} (interrupted)" if early else found.status
