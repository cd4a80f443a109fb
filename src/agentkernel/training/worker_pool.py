"""Worker processes that load untrusted modules, write Triton code for them or judge it.

A worker does one kind of work: TorchInductor without a GPU changes torch for good, so nothing is
judged in that process. Candidates run in the sandbox. Loading and capturing a module takes about
as long as judging a file for it, so files for one module go to one worker while there are others
to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import TypeAdapter

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import SandboxUnavailable, one_line
from agentkernel.domain.verdict import Failure, LoadFailed, RunFailed, Verdict, hack_name
from agentkernel.runtime.pool import AffinityQueue, assign_jobs
from agentkernel.runtime.worker import Worker, WorkerFailed, serve
from agentkernel.training.judged_problems import JudgedProblems, Verification

WorkKind = Literal["write", "judge"]


class WorkerRequest(Frozen):
    """A problem's file and, for the judge, the Triton code for it."""

    path: str
    answer: str = ""


class WrittenCode(Frozen):
    """Standalone Triton code, and who wrote it: a variant of TorchInductor's settings."""

    kind: Literal["written"] = "written"
    answer: str
    kernels: tuple[str, ...]
    variant: str


class JudgeFinding(Frozen):
    """`accepted` None: the judge came to no answer, and `reason` says why."""

    kind: Literal["judged"] = "judged"
    accepted: bool | None
    interpreted: bool = True
    reason: str = ""
    verdict: Verdict | None = None


WorkerAnswer = WrittenCode | JudgeFinding | WorkerFailed


def judge(line: Connection, verification: str) -> None:
    """Serve the judge's findings under `verification`, in JSON."""
    serve(line, WorkerRequest, judging(Verification.model_validate_json(verification)))


def judging(verification: Verification) -> Callable[[WorkerRequest], WorkerAnswer]:
    """What answers requests with the judge's finding. The problem of the last one stays loaded."""
    problems = JudgedProblems(verification, most=1)
    return lambda request: _judged(request, problems)


def _judged(question: WorkerRequest, problems: JudgedProblems) -> JudgeFinding:
    problem = problems.load(Path(question.path))
    try:
        verdict = problems.judge(problem, question.answer)
    except SandboxUnavailable as error:
        return JudgeFinding(accepted=None, reason=one_line(error))
    if verdict is None:
        return JudgeFinding(accepted=None, reason=problem.too_large)
    if verdict.failure is None:
        return JudgeFinding(accepted=True, interpreted=verdict.interpreted, verdict=verdict)
    reason = one_line(f"{verdict.gate}: {_words(verdict.failure)}")
    undecided = is_undecided(verdict.failure)
    return JudgeFinding(
        accepted=None if undecided else False,
        interpreted=verdict.interpreted,
        reason=reason,
        verdict=verdict,
    )


def is_undecided(failure: Failure) -> bool:
    """True for what does not say that the code is wrong: time or memory ran out, or there was
    nothing to judge it on."""
    if isinstance(failure, RunFailed):
        return failure.reason in ("timeout", "memory")
    if isinstance(failure, LoadFailed):
        return failure.log.startswith(("timeout: ", "could not be judged", "No case could be"))
    return False


def _words(failure: Failure) -> str:
    told = failure.model_dump(mode="json", exclude={"kind"}, exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in told.items())


ENTRIES: dict[WorkKind, str] = {
    "write": "agentkernel.training.kernel_writer:write",
    "judge": "agentkernel.training.worker_pool:judge",
}
ANSWERS: TypeAdapter[WorkerAnswer] = TypeAdapter(WorkerAnswer)


class PairWorker(Worker[WorkerRequest, WorkerAnswer]):
    """A process for one kind of work; `settings` is a Target or a Verification, in JSON."""

    def __init__(self, work: WorkKind, settings: str) -> None:
        super().__init__(ENTRIES[work], (settings,), ANSWERS)


STRICT = Verification(policy="triton", time_limit_s=8.0, budget_s=2.0, seeds=2)
"""The strict rule under the policy `triton`, without cases past the required ones for long. Right
files for modules that pairs are made of take a second a call in the interpreter."""
RL_VERIFICATION = STRICT.evolve(time_limit_s=2.0, budget_s=0.0, seeds=1)
"""The required cases alone, as where pairs are made: a right answer takes half a second. A step
waits for its slowest answer, so a call has two seconds; kernels of pairs take one at most."""
ANSWER_S = 240.0
"""What one candidate may take in all, loading the problem included."""
Done = Callable[[int, int], None]
"""Hears how many are judged, and of how many."""


class Submission(NamedTuple):
    """A problem's file and a candidate for it."""

    problem: Path
    source: str


class JudgedSubmission(NamedTuple):
    """`accepted` None: the judge came to no answer. `hack` names a candidate that did not do the
    work that was asked for."""

    accepted: bool | None
    reason: str = ""
    hack: str | None = None
    verdict: Verdict | None = None


Judgements = dict[Submission, JudgedSubmission]
"""What was found so far, under one way of judging."""


@dataclass(frozen=True)
class SubmissionJudge:
    """The judge of many submissions, in `jobs` processes. `known` holds its answers: what is there
    is not judged again. Where it came to none, the next who asks may be luckier."""

    verification: Verification = STRICT
    jobs: int | None = None
    known: Judgements = field(default_factory=dict)

    def judge(
        self, asked: Sequence[Submission], done: Done = lambda number, total: None
    ) -> tuple[JudgedSubmission, ...]:
        """What it found, in the order of `asked`; the same candidate is judged once."""
        different = [item for item in dict.fromkeys(asked) if item not in self.known]
        todo = AffinityQueue([str(item.problem) for item in different])
        found: Judgements = {}
        with ExitStack() as stack:
            settings = self.verification.model_dump_json()
            count = min(self.jobs or len(os.sched_getaffinity(0)), len(different))
            workers = [stack.enter_context(PairWorker("judge", settings)) for _ in range(count)]
            judged = assign_jobs(
                workers, todo.after, lambda worker, place: _asked(worker, different[place])
            )
            for place, answer in stack.enter_context(closing(judged)):
                found[different[place]] = answer
                done(len(found), len(different))
        self.known.update(
            (item, answer) for item, answer in found.items() if answer.accepted is not None
        )
        found = self.known | found
        return tuple(found.get(item, JudgedSubmission(None, "nobody judged it")) for item in asked)


def _asked(worker: PairWorker, item: Submission) -> JudgedSubmission:
    answer = worker.ask(WorkerRequest(path=str(item.problem), answer=item.source), ANSWER_S)
    if isinstance(answer, JudgeFinding):
        verdict = answer.verdict
        hack = hack_name(verdict) if verdict is not None else None
        return JudgedSubmission(answer.accepted, answer.reason, hack, verdict)
    return JudgedSubmission(
        None, answer.reason if isinstance(answer, WorkerFailed) else "no verdict"
    )
