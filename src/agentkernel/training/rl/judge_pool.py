"""Pool of judges for the answers of a model in training: local processes or a Ray cluster."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self
from uuid import uuid4

import torch
from pydantic import TypeAdapter

from agentkernel.agents.answers import extract_module
from agentkernel.domain.errors import (
    EnvironmentFailure,
    MissingDependency,
    SandboxUnavailable,
    SettingError,
    one_line,
)
from agentkernel.runtime import gpu_lock
from agentkernel.runtime.pool import AffinityQueue, assign_jobs
from agentkernel.runtime.ray import CONNECT_S, LOST, RayCluster, RayTask, TaskEnded
from agentkernel.runtime.worker import Worker, WorkerFailed
from agentkernel.tools.targets import find_target
from agentkernel.training.rl.judge_worker import (
    Basis,
    JudgedTurn,
    TurnAnswer,
    TurnJudge,
    TurnRequest,
    TurnSettings,
)
from agentkernel.training.worker_pool import RL_VERIFICATION

ENTRY = "agentkernel.training.rl.judge_worker:judge"
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

    def __exit__(self, *_: object) -> None:
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
        self._held.enter_context(gpu_lock.private_lock())
        self._workers = [
            Worker[TurnRequest, TurnAnswer](ENTRY, (settings.model_dump_json(),), ANSWERS)
            for _ in range(jobs or len(os.sched_getaffinity(0)))
        ]

    def ask(self, questions: Sequence[TurnRequest]) -> list[TurnAnswer | WorkerFailed]:
        """See JudgeBackend."""
        todo = AffinityQueue([item.problem for item in questions])

        def one(worker: Worker[TurnRequest, TurnAnswer], place: int) -> TurnAnswer | WorkerFailed:
            return worker.ask(questions[place], ANSWER_S)

        found = dict(assign_jobs(self._workers, todo.after, one))
        return [found[place] for place in range(len(questions))]

    def close(self) -> None:
        """See JudgeBackend."""
        for worker in self._workers:
            worker.close()
        self._held.close()


@dataclass(frozen=True)
class RlJudging:
    """Where answers are judged and how fast right ones are. None: on the GPU that is here, timed
    there; without one in the interpreter, with estimates for `target`."""

    target: str | None = None
    device: Literal["cpu", "cuda"] | None = None
    speed: Basis | Literal["none"] | None = None
    jobs: int | None = None
    """Processes of this machine that judge; as many as it has processors."""
    ray: str | None = None
    """The address of a Ray cluster whose workers judge."""


def turn_settings(rl_judging: RlJudging) -> TurnSettings:
    """What the judges are told. Raises SettingError for times that nobody here can measure."""
    device = rl_judging.device or ("cuda" if torch.cuda.is_available() else "cpu")
    resolved = find_target(rl_judging.target)
    measurable = (
        device == "cuda" and resolved.measurable and resolved.target.vendor == "nvidia"
    ) or rl_judging.ray is not None
    if rl_judging.speed == "measured" and not measurable:
        raise SettingError(
            f"Speedups cannot be measured for {resolved.target.name!r} on {device!r}. Expected the "
            "GPU that is here, with --device cuda. Next: --speed estimated."
        )
    chosen = rl_judging.speed or ("measured" if measurable and device == "cuda" else "estimated")
    verification = RL_VERIFICATION.evolve(device=device)
    return TurnSettings(verification=verification, target=rl_judging.target, speed=chosen)


def make_judges(rl_judging: RlJudging | None, asked: TurnSettings) -> JudgeBackend:
    """Who judges: processes of this machine, or the workers of a Ray cluster."""
    if rl_judging is not None and rl_judging.ray is not None:
        return RayBackend(rl_judging.ray, asked)
    return LocalBackend(asked, rl_judging.jobs if rl_judging else None)


def speed_source_note(asked: TurnSettings) -> str:
    """How fast right kernels are, and who says so."""
    words = {
        "measured": "measured on the GPU",
        "estimated": f"estimated for {find_target(asked.target).target.name}, nobody measured them",
        "none": "not looked at",
    }
    return words[asked.speed]


class RayBackend:
    """Tasks of the cluster at `address` ("auto", "ray://host:port"), or of one that is started here
    ("local"): a CPU each, and a GPU where `settings` ask for one.

    Raises MissingDependency without the package or the cluster, or where a node has other versions.
    """

    def __init__(self, address: str, settings: TurnSettings, patience_s: float = CONNECT_S) -> None:
        on_gpu = settings.verification.device == "cuda"
        self._options = {"num_cpus": 1, "num_gpus": 1 if on_gpu else 0}
        self._work = partial(answer_turn, settings.model_dump_json())
        self._cluster = RayCluster(address, "training", "this package", patience_s=patience_s)
        first = self._ended([TurnRequest()])[0]
        if first.answer is None:
            self.close()
            if isinstance(first.error, MissingDependency):
                raise first.error
            raise MissingDependency(
                f"A worker of the Ray cluster cannot judge: {_lost(first)}. Expected this package "
                "on every node, as it is here. Next: install it there, then give the same command."
            )

    def ask(self, questions: Sequence[TurnRequest]) -> list[TurnAnswer | WorkerFailed]:
        """All at once: Ray hands them out. Raises MissingDependency where the cluster is gone."""
        return [
            WorkerFailed(reason=_lost(ended))
            if ended.answer is None
            else TurnAnswer.model_validate_json(ended.answer)
            for ended in self._ended(questions)
        ]

    def _ended(self, questions: Sequence[TurnRequest]) -> list[TaskEnded]:
        keys = [uuid4().hex for _ in questions]
        for key, question in zip(keys, questions, strict=True):
            text = question.model_dump_json()
            self._cluster.begin(RayTask(key, "judge", self._work, text, self._options, ANSWER_S))
        ended = [self._cluster.ended() for _ in questions]
        return sorted(ended, key=lambda item: keys.index(item.key))

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._cluster.close()


def _lost(ended: TaskEnded) -> str:
    if ended.error is not None:
        return one_line(ended.error)
    return f"no answer within {ANSWER_S:g} s" if ended.hung else f"{LOST} ({ended.lost})"


def answer_turn(settings: str, question: str) -> str:
    """On a worker: one answer."""
    return _judge(settings).answer(TurnRequest.model_validate_json(question)).model_dump_json()


@cache
def _judge(settings: str) -> TurnJudge:
    """Ray keeps a worker for the next task: what it has loaded stays."""
    folder = tempfile.mkdtemp(prefix="agentkernel-turns-")
    return TurnJudge(TurnSettings.model_validate_json(settings), Path(folder))
