"""Judged kernels for tens of thousands of modules, appended to a file that survives a kill.

Modules are generated, or read from a folder in the KernelBench convention, or from KernelBook's
shards. The file is JSON lines in whole gzip members.
"""

from __future__ import annotations

import gzip
import itertools
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import RunBusy, SettingError, TrainingError
from agentkernel.knowledge import kernelbook
from agentkernel.knowledge.code_structure import module_class
from agentkernel.knowledge.pairs import problem_files, shards_of
from agentkernel.runtime.pool import assign_jobs
from agentkernel.runtime.worker import Worker, WorkerFailed
from agentkernel.storage import files
from agentkernel.storage.files import explain_write_failure, make_folder, open_append, write_atomic
from agentkernel.training.data.generator import (
    LICENCE,
    MODULE_KINDS,
    GeneratedProblem,
    make_problem,
)
from agentkernel.training.data.pair_worker import (
    Missed,
    PairRequest,
    PairSettings,
    ProblemResult,
)
from agentkernel.training.data.rows import module_refusal
from agentkernel.training.settings import JudgedKernel, Say

ENTRY = "agentkernel.training.data.pair_worker:make"
WORKED: TypeAdapter[ProblemResult] = TypeAdapter(ProblemResult)
DEFAULTS = PairSettings()
PROBLEM_S = 300.0
"""A problem whose kernels take longer to draft and judge is given up, and its process ended."""
CHUNK = 1 << 20
MOST_IN_VAIN = 20
"""Modules without a row, for one reason, after which it is no longer the modules."""
MISSED_SUFFIX = ".missed.jsonl.gz"
BUSY_S = 5.0


class PairsReport(Frozen):
    """What one call of `make_pairs` came to. `rows` and `missed` count this call alone, `known` the
    problems that the file knew before; `labels` and `stages` say of which kind."""

    problems: int
    known: int
    rows: int
    labels: dict[str, int] = Field(default_factory=dict)
    stages: dict[str, int] = Field(default_factory=dict)
    cpu_s: dict[str, float] = Field(default_factory=dict)
    """Processor seconds of the drafting processes by stage, without the sandbox's."""
    seconds: float


def generated(start: int = 0, kinds: Sequence[str] = ()) -> Iterator[GeneratedProblem]:
    """The modules of the seeds from `start` on, without end; of equal texts the first.

    As they come, or one of each of `kinds` (of MODULE_KINDS) in turn, each kind in the order of its
    seeds.
    """
    if kinds:
        own = [_of_kind(start, kind) for kind in dict.fromkeys(kinds)]
        while True:
            yield from map(next, own)
    seen: set[str] = set()
    for seed in itertools.count(start):
        problem = make_problem(seed)
        if problem.sha256 not in seen:
            seen.add(problem.sha256)
            yield problem


def _of_kind(start: int, kind: str) -> Iterator[GeneratedProblem]:
    assert kind in MODULE_KINDS, kind  # else there is no first one
    return (problem for problem in generated(start) if problem.kind == kind)


def make_pairs(
    problems: Iterable[GeneratedProblem],
    out: Path,
    settings: PairSettings = DEFAULTS,
    *,
    jobs: int = 1,
    say: Say = lambda line: None,
    show: Callable[[int, int], None] = lambda rows, fresh: None,
    most: int | None = None,
) -> PairsReport:
    """Append judged kernels for `problems` to `out` (JSON lines of Judged, gzip), until the
    problems end or the file holds `most` rows.

    Each problem's rows are written at once and whole: after a kill at any moment the next call goes
    on, makes nothing twice, and cuts off what was half written. What came to nothing stands beside
    it (`missed_file`), and is not tried again. `jobs` problems are worked on at a time, each in a
    process of its own. `say` gets a line a problem, `show` the rows in the file and those of this
    call, both from the caller's thread.

    Raises SettingError for `jobs` or `most` below 1, or a name that does not end in ".jsonl.gz";
    TrainingError where `out` or the file beside it holds something else, which is left as it is, or
    where no module gives a row, all for one reason; RunBusy where another process writes it;
    OutputError.
    """
    _check(out, jobs, most)
    make_folder(out.parent)
    with _alone(out):
        return _make(problems, out, jobs, settings, most, say, show)


def _make(
    problems: Iterable[GeneratedProblem],
    out: Path,
    jobs: int,
    chosen: PairSettings,
    most: int | None,
    say: Say,
    show: Callable[[int, int], None],
) -> PairsReport:
    begun_s = time.monotonic()
    there = {out: _known(out, JudgedKernel), missed_file(out): _known(missed_file(out), Missed)}
    for path, found in there.items():  # once nothing speaks against either
        _cut(path, found.end)
    known = set[str]().union(*(found.problems for found in there.values()))
    rows = there[out].lines
    labels, stages, cpu_s = Counter[str](), Counter[str](), Counter[str]()
    worked_on, why = 0, Counter[str]()
    fresh = (problem for problem in problems if problem.sha256 not in known)

    def left() -> bool:
        return most is None or rows + labels.total() < most

    for problem, worked in _worked(fresh, chosen, jobs, left):
        # In this order: rows that a kill leaves without their misses are a problem done.
        _append(out, [item.model_dump_json() for item in worked.rows])
        _append(missed_file(out), [item.model_dump_json() for item in worked.missed])
        labels.update(row.label for row in worked.rows)
        stages.update(item.stage for item in worked.missed)
        cpu_s.update(worked.cpu_s)
        worked_on += 1
        _stop_where_nothing_works(worked, rows + labels.total(), why)
        show(rows + labels.total(), labels.total())
        say(f"[{rows + labels.total()}] {problem.name}: {_words(worked)}")
    return PairsReport(
        problems=worked_on,
        known=len(known),
        rows=labels.total(),
        labels=dict(labels),
        stages=dict(stages),
        cpu_s={name: round(value, 3) for name, value in cpu_s.items()},
        seconds=round(time.monotonic() - begun_s, 3),
    )


def read_pairs(path: Path) -> Iterator[JudgedKernel]:
    """The rows of a file that `make_pairs` writes or wrote; what is half written is left out."""
    for line in _lines(path):
        yield JudgedKernel.model_validate_json(line)


def missed_file(path: Path) -> Path:
    """Where it stands what came to nothing: `pairs.missed.jsonl.gz` for `pairs.jsonl.gz`."""
    return path.with_name(path.name.removesuffix(".jsonl.gz") + MISSED_SUFFIX)


def _stop_where_nothing_works(worked: ProblemResult, rows: int, why: Counter[str]) -> None:
    """Raise TrainingError where module after module fails for one reason, and none gave a row."""
    why.update({item.reason for item in worked.missed})
    if rows or sum(why.values()) < MOST_IN_VAIN:
        return
    reason, times = why.most_common(1)[0]
    if times >= MOST_IN_VAIN:
        raise TrainingError(
            f"{times} modules gave no row, all of them for one reason: {reason}. Expected most "
            "modules to give three. Next: 'agentkernel doctor' says what this machine lacks."
        )


def _check(out: Path, jobs: int, most: int | None) -> None:
    for name, count in (("jobs", jobs), ("most", most)):
        if count is not None and count < 1:
            raise SettingError(
                f"{name} is {count}. Expected 1 or more. Next: give a positive number."
            )
    if not out.name.endswith(".jsonl.gz"):
        raise SettingError(
            f"Cannot write pairs to {out.name!r}. Expected a name that ends in '.jsonl.gz'. "
            f"Next: say {out.with_suffix('').name + '.jsonl.gz'!r}."
        )


def _words(worked: ProblemResult) -> str:
    """For people: what became of a problem."""
    labels = Counter(row.label for row in worked.rows)
    told = [f"{count} {label}" for label, count in labels.items()]
    told += [f"{item.stage}: {item.reason}" for item in worked.missed]
    return "; ".join(told) or "nothing"


def _worked(
    problems: Iterator[GeneratedProblem],
    settings: PairSettings,
    jobs: int,
    left: Callable[[], bool],
) -> Iterator[tuple[GeneratedProblem, ProblemResult]]:
    """What becomes of each problem, in the order in which they are done; few are begun ahead, so
    that `problems` may be without end."""
    workers = [
        Worker[PairRequest, ProblemResult](ENTRY, (settings.model_dump_json(),), WORKED)
        for _ in range(jobs)
    ]

    def take(worker: object, last: GeneratedProblem | None) -> GeneratedProblem | None:
        return next(problems, None) if left() else None

    def work(
        worker: Worker[PairRequest, ProblemResult], problem: GeneratedProblem
    ) -> ProblemResult:
        told = worker.ask(PairRequest(problem=problem), PROBLEM_S)
        return _lost(problem, told.reason) if isinstance(told, WorkerFailed) else told

    try:
        with closing(assign_jobs(workers, take, work)) as worked:
            for problem, result in worked:
                yield problem, result
                if not left():
                    return
    finally:
        for worker in workers:
            worker.close()


def _lost(problem: GeneratedProblem, reason: str) -> ProblemResult:
    missed = Missed(
        problem_sha256=problem.sha256, name=problem.name, stage="load", reason=reason[:200]
    )
    return ProblemResult(missed=(missed,))


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Be the only process that writes `out`. Raises RunBusy, OutputError."""
    busy = RunBusy(
        f"Another process writes {str(out)!r}. Expected that nobody does. Next: wait for it, end "
        "it, or choose another --out; the same command then goes on."
    )
    with files.hold_file_lock(out.with_name(f".{out.name}.lock"), busy, BUSY_S):
        yield


def _append(path: Path, lines: Sequence[str]) -> None:
    """Add `lines` as one gzip member, whole or not at all once it is read again."""
    if not lines:
        return
    member = gzip.compress("".join(f"{line}\n" for line in lines).encode(), 6, mtime=0)
    if not path.exists() or not path.stat().st_size:
        # Never half there: a torn first member cannot be told from a file of somebody else's.
        write_atomic(path, member)
        return
    with explain_write_failure(path), open_append(path) as file:
        file.write(member)
        file.flush()
        os.fsync(file.fileno())


class _Known(NamedTuple):
    """What the whole members of a file hold, and where the last one ends."""

    problems: set[str]
    lines: int
    end: int


def _known(path: Path, kind: type[JudgedKernel | Missed]) -> _Known:
    """What this command wrote to `path`. Raises TrainingError where somebody else wrote it, or it
    is broken elsewhere than at its end; OutputError."""
    problems, lines, end = set[str](), 0, 0
    if not path.exists():
        return _Known(problems, lines, end)
    # "+": what cannot be written to is told before a kernel is made.
    with explain_write_failure(path), open_append(path) as file:
        file.seek(0)
        try:
            for member in _members(file):
                for line in member.lines:
                    problems.add(kind.model_validate_json(line).problem_sha256)
                    lines += 1
                end = member.end
        except (zlib.error, UnicodeDecodeError):
            raise _foreign(path, f"what stands behind byte {end} is no gzip of lines") from None
        except ValidationError as error:
            field = ".".join(map(str, error.errors(include_url=False)[0]["loc"])) or "no JSON"
            raise _foreign(path, f"line {lines + 1} is none of its rows ({field})") from None
        size = os.fstat(file.fileno()).st_size
    if end < size and not lines:
        raise _foreign(path, "its first rows are broken off")
    return _Known(problems, lines, end)


def _foreign(path: Path, why: str) -> TrainingError:
    return TrainingError(
        f"{str(path)!r} is no file that pairs go on in: {why}. Expected a new file, or one of this "
        "command. Next: choose another --out."
    )


def _cut(path: Path, end: int) -> None:
    """Cut off what is half written."""
    with explain_write_failure(path):
        if path.exists() and path.stat().st_size > end:
            os.truncate(path, end)


def _lines(path: Path) -> Iterator[str]:
    if not path.exists():
        return
    with path.open("rb") as file, suppress(zlib.error):
        for member in _members(file):
            yield from member.lines


class _Member(NamedTuple):
    """The lines of a whole gzip member, and where in the file it ends."""

    lines: list[str]
    end: int


def _members(file: IO[bytes]) -> Iterator[_Member]:
    """Every whole member up to one that is broken off. Raises zlib.error where there is none."""
    data, end = file.read(CHUNK), 0
    while data:
        inflater = zlib.decompressobj(wbits=31)
        text, taken = b"", 0
        while data and not inflater.eof:
            text += inflater.decompress(data)
            taken += len(data) - len(inflater.unused_data)
            data = inflater.unused_data or file.read(CHUNK)
        if not inflater.eof:
            return
        end += taken
        # Not splitlines: in JSON other ends of a line may stand within a text.
        yield _Member([line for line in text.decode().split("\n") if line], end)
        data = data or file.read(CHUNK)


NAMED = re.compile(r"\bModel\b")


def problems_in(path: Path, licence: str = LICENCE) -> Iterator[GeneratedProblem]:
    """The modules of a folder in the KernelBench convention, which are under `licence`, or those of
    KernelBook's shards, each under its own. Nothing is run here.

    Raises ProblemError or SettingError where there are none.
    """
    if path.is_dir() and next(path.rglob("*.py"), None) is not None:
        for file in problem_files(path):
            name = Path(file.name).stem
            yield GeneratedProblem(text=file.text, name=name, licence=licence)
        return
    yield from _published(path)


def _published(path: Path) -> Iterator[GeneratedProblem]:
    shards_of(path)
    for row in kernelbook.read_pairs(path):
        found = None if isinstance(row, kernelbook.BadRow) else as_problem(row)
        if found is not None:
            yield found


def as_problem(pair: kernelbook.Pair) -> GeneratedProblem | None:
    """The module of a published pair, its class called `Model`; None where that cannot be, or the
    module is none that may be run, or is not under one permissive licence."""
    if len(pair.licences) != 1:
        return None
    node = module_class(pair.python_code, pair.entry_point or None)
    if node is None:
        return None
    text = pair.python_code
    if node.name != "Model":
        if NAMED.search(text):
            return None
        text = re.sub(rf"\b{re.escape(node.name)}\b", "Model", text)
    licence = pair.licences[0]
    if module_refusal(text, licence, kernelbook.PERMISSIVE) is not None:
        return None
    return GeneratedProblem(text=text, name=node.name, licence=licence, source="kernelbook")


def write_problems(count: int, start: int, out: Path) -> int:
    """Write the generator's modules of the seeds from `start` on, `count` different ones, one file
    each; how many were not there yet. Raises SettingError, OutputError."""
    from itertools import islice

    if count < 1:
        raise SettingError(
            f"count is {count}. Expected 1 or more. Next: say how many modules to write."
        )
    make_folder(out)
    fresh = 0
    for problem in islice(generated(start), count):
        path = out / f"{problem.name}.py"
        if not path.is_file():
            write_atomic(path, problem.text)
            fresh += 1
    return fresh
