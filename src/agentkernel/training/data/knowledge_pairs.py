"""Pairs of PyTorch and Triton code for the knowledge base, from a folder of modules."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import SettingError
from agentkernel.domain.knowledge import Entry, Verified
from agentkernel.knowledge.code_structure import structure_of_code
from agentkernel.knowledge.pairs import ProblemFile, problem_files, title_of
from agentkernel.runtime.machine import installed_versions
from agentkernel.runtime.pool import assign_jobs
from agentkernel.tools.targets import ResolvedTarget, find_target
from agentkernel.training.judged_problems import Verification
from agentkernel.training.settings import Say
from agentkernel.training.worker_pool import JudgeFinding, PairWorker, WorkerRequest, WrittenCode

OWN_LICENCE = "Apache-2.0"
ID_DIGITS = 12
WRITE_S = 120.0
"""A module that takes longer to trace and write hangs."""
JUDGE_S = 60.0
"""A judgement that takes longer comes to no answer."""


class UnpairedModule(Frozen):
    """A module without a pair: nothing could be written for it, or the judge rejected that."""

    file: str
    stage: Literal["write", "judge"]
    reason: str


class Report(Frozen):
    """What became of the modules of a folder. `known` were there before and are not counted in the
    others; `made` = `verified_gpu` + `verified_interpreter` + `unverified`."""

    found: int
    known: int
    made: int
    verified_gpu: int
    verified_interpreter: int
    unverified: int
    failed: tuple[UnpairedModule, ...]
    seconds: float


@dataclass(frozen=True)
class MadePair:
    """A pair's Triton code, where it was seen to be right, and if nowhere, why not."""

    written: WrittenCode
    verified: Verified
    reason: str = ""


Outcome = MadePair | UnpairedModule


class WriterAndJudge:
    """One writer and one judge, used by one thread at a time."""

    def __init__(self, target: ResolvedTarget, verification: Verification | None) -> None:
        self.writer = PairWorker("write", target.target.model_dump_json())
        self.judge: PairWorker | None = None
        if verification is not None:
            self.judge = PairWorker("judge", verification.model_dump_json())

    def make(self, file: ProblemFile) -> Outcome:
        """Write the code for `file` and, where there is a judge, ask it."""
        found = self.writer.ask(WorkerRequest(path=str(file.path)), WRITE_S)
        if not isinstance(found, WrittenCode):
            return UnpairedModule(file=file.name, stage="write", reason=found.reason)
        if self.judge is None:
            return MadePair(found, "no", "not asked for")
        question = WorkerRequest(path=str(file.path), answer=found.answer)
        judged = self.judge.ask(question, JUDGE_S)
        if not isinstance(judged, JudgeFinding) or judged.accepted is None:
            return MadePair(found, "no", "" if isinstance(judged, WrittenCode) else judged.reason)
        if not judged.accepted:
            return UnpairedModule(file=file.name, stage="judge", reason=judged.reason)
        return MadePair(found, "interpreter" if judged.interpreted else "gpu")

    def kill(self) -> None:
        """End what is at work, from another thread."""
        self.writer.kill()
        if self.judge is not None:
            self.judge.kill()

    def close(self) -> None:
        """End both processes."""
        self.writer.close()
        if self.judge is not None:
            self.judge.close()


@dataclass(frozen=True)
class FreshProblems:
    """The `files` of a folder that pairs are to be made of; of those found, `known` have one."""

    files: tuple[ProblemFile, ...]
    found: int
    known: int


def fresh_problems(
    folder: Path, known: Container[str] = frozenset(), limit: int | None = None
) -> FreshProblems:
    """The problems in `folder` but those whose text has a SHA-256 in `known`; of the rest at most
    `limit`. Raises ProblemError where the folder holds none, SettingError for a `limit` below 1."""
    _check_count("limit", limit)
    files = problem_files(folder)
    fresh = tuple(file for file in files if file.sha256 not in known)
    return FreshProblems(fresh[:limit], len(files), len(files) - len(fresh))


def generate_pairs(
    problems: FreshProblems,
    put: Callable[[Entry], None],
    *,
    target: str = "h100",
    jobs: int = 1,
    say: Say = lambda line: None,
    verify: bool = True,
    licence: str = OWN_LICENCE,
) -> Report:
    """Make a pair of each problem, with the Triton code that TorchInductor writes for it, and hand
    it to `put` as soon as it is there.

    With a GPU the code is for that one, else for `target`. `verify`: the judge runs it, on the GPU
    where that stands for `target`, else in the interpreter; what it rejects is no pair, what it
    cannot decide in time is one with `verified` "no". `jobs` modules are worked on at a time, each
    in processes of its own, so that one that hangs or dies costs itself alone. `put`
    and `say` (a line a module) are called from the caller's thread.

    Raises UnknownTarget, and SettingError for `jobs` below 1.
    """
    _check_count("jobs", jobs)
    begun_s = time.monotonic()
    resolved = find_target(target)
    verification = None
    if verify:
        verification = Verification(device="cuda" if resolved.measurable else "cpu")
    triton = installed_versions().triton
    verified: Counter[Verified] = Counter()
    failed: list[UnpairedModule] = []
    taken = problems.files
    for place, (file, outcome) in enumerate(_outcomes(taken, resolved, verification, jobs), 1):
        if isinstance(outcome, MadePair):
            put(_entry(file, outcome, licence, triton))
            verified[outcome.verified] += 1
        else:
            failed.append(outcome)
        say(f"[{place}/{len(taken)}] {file.name}: {_words(outcome)}")
    return Report(
        found=problems.found,
        known=problems.known,
        made=verified.total(),
        verified_gpu=verified["gpu"],
        verified_interpreter=verified["interpreter"],
        unverified=verified["no"],
        failed=tuple(sorted(failed, key=lambda miss: miss.file)),
        seconds=round(time.monotonic() - begun_s, 3),
    )


def _check_count(name: str, count: int | None) -> None:
    if count is not None and count < 1:
        raise SettingError(f"{name} is {count}. Expected 1 or more. Next: give a positive number.")


def _outcomes(
    files: Sequence[ProblemFile],
    target: ResolvedTarget,
    verification: Verification | None,
    jobs: int,
) -> Iterator[tuple[ProblemFile, Outcome]]:
    """What becomes of each file, in the order in which they are done."""
    runners = [WriterAndJudge(target, verification) for _ in range(min(jobs, len(files)))]
    left = iter(files)
    try:
        with closing(
            assign_jobs(runners, lambda runner, last: next(left, None), WriterAndJudge.make)
        ) as made:
            yield from made
    finally:
        for runner in runners:
            runner.close()


def _entry(file: ProblemFile, made: MadePair, licence: str, triton: str | None) -> Entry:
    """The pair of `file`; `triton` is the Triton version that it was verified with, if it was."""
    title, written = title_of(file), made.written
    names = ", ".join(written.kernels)
    summary = f"Triton by TorchInductor ({written.variant}): {names}." if names else ""
    digest = sha256_text("\0".join((file.text, written.answer)))
    return Entry(
        id=f"generated/{digest[:ID_DIGITS]}",
        kind="pair",
        title=title,
        summary=summary,
        problem=file.text,
        answer=written.answer,
        passages=(f"{title}\n{summary}".strip(), file.text),
        source=file.name,
        licence=licence,
        verified=made.verified,
        structure=structure_of_code(file.text),
        triton=triton if made.verified != "no" else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _words(outcome: Outcome) -> str:
    """For people: what became of a module."""
    if isinstance(outcome, UnpairedModule):
        verb = "rejected" if outcome.stage == "judge" else "not written"
        return f"{verb}: {outcome.reason}"
    if outcome.verified == "no":
        return f"a pair, not verified: {outcome.reason}"
    return f"a pair, verified: {outcome.verified}"
