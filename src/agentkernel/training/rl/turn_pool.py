"""Who judges the answers of a training: processes here, or workers of a Ray cluster?"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from pydantic import TypeAdapter

from agentkernel.agents.answer import extract_module
from agentkernel.domain.errors import EnvironmentFailure, SandboxUnavailable
from agentkernel.runtime import gate
from agentkernel.training.judge_queue import JudgeQueue
from agentkernel.training.pair_lane import WorkerProcess
from agentkernel.training.pair_process import WorkerFailed
from agentkernel.training.rl.reward import JudgedTurn
from agentkernel.training.rl.turn_work import TurnAnswer, TurnRequest, TurnSettings

MODULE = "agentkernel.training.rl.turn_work"
ANSWERS: TypeAdapter[TurnAnswer] = TypeAdapter(TurnAnswer)
ANSWER_S = 300.0
"""What one answer may take, loading its problem, judging and timing it included."""
TRIES = 2
"""So often is a file judged whose judge was lost: a neighbour may have been to blame."""
MOST_IN_VAIN = 3
"""Calls one after the other of which no file was judged: late in a training, when most answers are
known, a call may be about one file that hangs."""
MOST_KEPT = 20_000
"""Answers that are remembered: a model that grows sure of itself repeats them."""


class ProblemAnswer(NamedTuple):
    """What a model said to a problem; `parent` is the file that its edits are about."""

    problem: str
    text: str
    parent: str | None = None


class RlEnvironment(Protocol):
    """Whoever says what an answer is worth."""

    def judge(self, answers: Sequence[ProblemAnswer]) -> list[JudgedTurn]:
        """What became of each, in order."""
        ...


class JudgeBackend(Protocol):
    """Processes that judge, wherever they are."""

    def ask(self, questions: Sequence[TurnRequest]) -> list[TurnAnswer | WorkerFailed]:
        """An answer to each, in order; Failed where the one who judged was lost."""
        ...

    def close(self) -> None:
        """End them."""
        ...


class JudgePool:
    """The judge as an environment: a file is found in an answer by reading alone, and run nowhere
    but in the sandbox of one of `judges`."""

    def __init__(self, judges: JudgeBackend) -> None:
        self._judges = judges
        self._kept: OrderedDict[TurnRequest, JudgedTurn] = OrderedDict()
        self._in_vain = 0

    def judge(self, answers: Sequence[ProblemAnswer]) -> list[JudgedTurn]:
        """Equal files for one problem are judged once. Raises EnvironmentFailure where nothing at
        all is judged, SandboxUnavailable where nothing can be run safely."""
        files = [extract_module(item.text, parent=item.parent) for item in answers]
        asked = [
            None if file is None else TurnRequest(problem=item.problem, file=file)
            for item, file in zip(answers, files, strict=True)
        ]
        new = [item for item in dict.fromkeys(asked) if item is not None and item not in self._kept]
        found = dict(zip(new, self._asked(new), strict=True))
        for item, turn in found.items():
            if turn.verdict is not None and not turn.why:
                self._kept[item] = turn
        turns = [
            JudgedTurn() if item is None else found.get(item) or self._kept[item] for item in asked
        ]
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return turns

    def _asked(self, questions: Sequence[TurnRequest]) -> list[JudgedTurn]:
        told: dict[int, TurnAnswer | WorkerFailed] = {}
        left = list(range(len(questions)))
        for _ in range(TRIES):
            answers = self._judges.ask([questions[place] for place in left])
            told.update(zip(left, answers, strict=True))
            left = [place for place in left if isinstance(told[place], WorkerFailed)]
            if not left:
                break
        self._in_vain = self._in_vain + 1 if questions and len(left) == len(questions) else 0
        if self._in_vain and (self._in_vain == MOST_IN_VAIN or self._nobody()):
            lost = told[0]
            assert isinstance(lost, WorkerFailed)
            raise EnvironmentFailure(
                f"Nobody judged any of {len(questions)} files: {lost.reason}. Expected verdicts. "
                "Next: see 'agentkernel doctor', then give the same command: it goes on."
            )
        return [_turn(question, told[place]) for place, question in enumerate(questions)]

    def _nobody(self) -> bool:
        """True where a question without a file is lost too: then it is not the files."""
        return isinstance(self._judges.ask([TurnRequest()])[0], WorkerFailed)

    def close(self) -> None:
        """End those who judge."""
        self._judges.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _turn(question: TurnRequest, answer: TurnAnswer | WorkerFailed) -> JudgedTurn:
    if isinstance(answer, WorkerFailed):
        return JudgedTurn(file=question.file, why=answer.reason)
    if answer.unable:
        raise SandboxUnavailable(answer.unable)
    return answer.turn


class LocalBackend:
    """`jobs` processes of this machine, which live on between the steps of a training. Where they
    use a GPU, one that times has it alone."""

    def __init__(self, settings: TurnSettings, jobs: int | None = None) -> None:
        self._held = ExitStack()
        self._held.enter_context(gate.private_lock())
        arguments = (settings.model_dump_json(),)
        count = jobs or len(os.sched_getaffinity(0))
        self._lanes = [
            WorkerProcess[TurnRequest, TurnAnswer](MODULE, arguments, ANSWERS) for _ in range(count)
        ]
        self._closed = threading.Event()

    def ask(self, questions: Sequence[TurnRequest]) -> list[TurnAnswer | WorkerFailed]:
        """See Judges."""
        todo = JudgeQueue([item.problem for item in questions])
        found: dict[int, TurnAnswer | WorkerFailed] = {}

        def work(worker_process: WorkerProcess[TurnRequest, TurnAnswer]) -> None:
            place: int | None = None
            try:
                while (place := todo.after(place)) is not None:
                    found[place] = self._one(worker_process, questions[place])
            except BaseException:
                todo.clear()  # nobody judges on for a training that ends
                raise

        threads = ThreadPoolExecutor(len(self._lanes), "judges")
        try:
            list(threads.map(work, self._lanes[: len(questions)]))
        except BaseException:
            # Whoever waits for an answer gets Failed, so that the threads end.
            self._closed.set()
            for worker_process in self._lanes:
                worker_process.kill()
            raise
        finally:
            threads.shutdown(wait=True, cancel_futures=True)
        return [found[place] for place in range(len(questions))]

    def _one(
        self, worker_process: WorkerProcess[TurnRequest, TurnAnswer], question: TurnRequest
    ) -> TurnAnswer | WorkerFailed:
        if self._closed.is_set():
            return WorkerFailed(reason="the training ends")
        return worker_process.ask(question, ANSWER_S)

    def close(self) -> None:
        """See Judges."""
        self._closed.set()
        for worker_process in self._lanes:
            worker_process.close()
        self._held.close()


__all__ = [
    "ANSWER_S",
    "JudgeBackend",
    "JudgePool",
    "LocalBackend",
    "ProblemAnswer",
    "RlEnvironment",
]
