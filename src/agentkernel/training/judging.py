"""What does the judge say of many candidates, several at a time?

Each worker is a process that lives on and is asked by a thread of its own (`pair_lane`); it judges
in the sandbox, and where it hangs or dies only that one candidate has no verdict.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from agentkernel.domain.verdict import Verdict, hack_name
from agentkernel.training.judge_queue import JudgeQueue
from agentkernel.training.judged_problems import Verification
from agentkernel.training.pair_lane import PairWorker
from agentkernel.training.pair_process import JudgeFinding, WorkerFailed, WorkerRequest

STRICT = Verification(policy="triton", time_limit_s=8.0, budget_s=2.0, seeds=2)
"""The strict rule under the policy `triton`, without cases past the required ones for long. Right
files for modules that pairs are made of take a second a call in the interpreter."""
RL_VERIFICATION = STRICT.model_copy(update={"time_limit_s": 2.0, "budget_s": 0.0, "seeds": 1})
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


def jobs_here() -> int:
    """As many workers as processors that this process may use."""
    return max(len(os.sched_getaffinity(0)), 1)


def judge_all(
    asked: Sequence[Submission],
    verification: Verification = STRICT,
    jobs: int | None = None,
    done: Done = lambda number, total: None,
    known: Judgements | None = None,
) -> tuple[JudgedSubmission, ...]:
    """What the judge found, in the order of `asked`; the same candidate is judged once. `known`
    holds answers under the same `verification`: what is there is not judged again, and new ones
    are put there. Where the judge came to none, the next who asks may be luckier."""
    known = {} if known is None else known
    different = [item for item in dict.fromkeys(asked) if item not in known]
    todo = JudgeQueue([str(item.problem) for item in different])
    found: dict[Submission, JudgedSubmission] = {}
    counting = threading.Lock()
    lanes = min(jobs or jobs_here(), len(different))

    def work(worker_process: PairWorker) -> None:
        place: int | None = None
        while (place := todo.after(place)) is not None:
            item = different[place]
            answer = _asked(worker_process, item)
            with counting:
                found[item] = answer
                done(len(found), len(different))

    with ExitStack() as stack:
        settings = verification.model_dump_json()
        workers = [stack.enter_context(PairWorker("judge", settings)) for _ in range(lanes)]
        threads = [
            threading.Thread(target=work, args=(worker_process,), daemon=True)
            for worker_process in workers
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            # Who waits for a verdict gets none, so that the threads end before their processes.
            todo.clear()
            for worker_process in workers:
                worker_process.kill()
            for thread in threads:
                thread.join()
            raise
    known.update((item, answer) for item, answer in found.items() if answer.accepted is not None)
    found = known | found
    return tuple(found.get(item, JudgedSubmission(None, "nobody judged it")) for item in asked)


def _asked(worker_process: PairWorker, item: Submission) -> JudgedSubmission:
    answer = worker_process.ask(WorkerRequest(path=str(item.problem), answer=item.source), ANSWER_S)
    if isinstance(answer, JudgeFinding):
        verdict = answer.verdict
        hack = hack_name(verdict) if verdict is not None else None
        return JudgedSubmission(answer.accepted, answer.reason, hack, verdict)
    return JudgedSubmission(
        None, answer.reason if isinstance(answer, WorkerFailed) else "no verdict"
    )


__all__ = [
    "RL_VERIFICATION",
    "STRICT",
    "JudgedSubmission",
    "Judgements",
    "Submission",
    "jobs_here",
    "judge_all",
]
