"""Pool of judges for the answers of a model in training: local processes or a Ray cluster.

A process of its own talks to Ray, so that the end of Ray is one line here and not the end of
the training.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import multiprocessing
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

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
from agentkernel.runtime.machine import installed_versions
from agentkernel.runtime.ray import (
    CONNECT_S,
    LEAVE_S,
    LOCAL,
    POLL_S,
    SHARED,
    STDERR,
    connect_ray,
    detach,
    last_words,
    ray_folder,
)
from agentkernel.tools.targets import find_target
from agentkernel.training.rl.judge_worker import (
    Basis,
    JudgedTurn,
    TurnAnswer,
    TurnJudge,
    TurnRequest,
    TurnSettings,
)
from agentkernel.training.worker_pool import (
    READY,
    RL_VERIFICATION,
    JudgeQueue,
    WorkerFailed,
    WorkerProcess,
)

MODULE = "agentkernel.training.rl.judge_worker"
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
        self._held.enter_context(gpu_lock.private_lock())
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


@dataclass(frozen=True)
class RayReply:
    """What became of the question of that number: an answer as JSON, or how its worker was lost."""

    number: int
    answer: str | None
    lost: str = ""


class RayBackend:
    """Tasks of the cluster at `address` ("auto", "ray://host:port"), or of one that is started here
    ("local"): a CPU each, and a GPU where `settings` ask for one.

    Raises MissingDependency without the package or the cluster, or where a node has other versions.
    """

    def __init__(self, address: str, settings: TurnSettings, patience_s: float = CONNECT_S) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingDependency(
                f"--ray {address} needs the package 'ray', which is not installed. "
                "Next: pip install 'agentkernel[ray]'."
            )
        self._address = address
        self._folder = ray_folder()
        self._log = Path(self._folder.name) / "driver.log"
        # Not forked: torch and Ray have threads. A daemon, lest an exit in between waits for it.
        context = multiprocessing.get_context("spawn")
        self._line, there = context.Pipe()
        self._child = context.Process(
            target=serve,
            args=(there, address, settings.model_dump_json(), self._log),
            daemon=True,
        )
        self._child.start()
        there.close()
        ready = self._line.poll(patience_s) and self._received()
        if ready != READY:
            why = ready or last_words(self._log) or f"no answer in {patience_s:.0f} s"
            if address != LOCAL:  # Ray would look for it still
                self._child.kill()
            self.close()
            raise MissingDependency(
                f"No Ray cluster answers at {address!r}: {one_line(str(why))}. Expected auto, "
                "local, or ray://HOST:10001. Next: start one with 'ray start --head'; for one that "
                "asks for a token set RAY_AUTH_MODE=token."
            )
        self._check(self.ask([TurnRequest()])[0])

    def ask(self, questions: Sequence[TurnRequest]) -> list[TurnAnswer | WorkerFailed]:
        """All at once: Ray hands them out. Raises MissingDependency where the cluster is gone."""
        found: dict[int, TurnAnswer | WorkerFailed] = {}
        try:
            for number, question in enumerate(questions):
                self._line.send((number, question.model_dump_json()))
        except OSError as error:
            raise self._gone() from error
        while len(found) < len(questions):
            told = self._received()
            if not isinstance(told, RayReply):
                raise self._gone()
            found[told.number] = (
                WorkerFailed(reason=told.lost)
                if told.answer is None
                else TurnAnswer.model_validate_json(told.answer)
            )
        return [found[number] for number in range(len(questions))]

    def _received(self) -> object:
        try:
            return self._line.recv()
        except (EOFError, OSError):
            return None

    def _gone(self) -> MissingDependency:
        words = last_words(self._log)
        return MissingDependency(
            f"The Ray cluster at {self._address!r} does not answer any more"
            f"{f': {words}' if words else '.'} Expected that it outlives the training. Next: start "
            "it again, then give the same command: it goes on."
        )

    def _check(self, answer: TurnAnswer | WorkerFailed) -> None:
        here = installed_versions()
        there = None if isinstance(answer, WorkerFailed) else answer.versions
        if there is None:
            why = answer.reason if isinstance(answer, WorkerFailed) else "no versions"
            self.close()
            raise MissingDependency(
                f"A worker of the Ray cluster cannot judge: {why}. Expected this package on every "
                "node, as it is here. Next: install it there, then give the same command."
            )
        for name in SHARED:
            if getattr(here, name) != getattr(there, name):
                self.close()
                raise MissingDependency(
                    f"A node of the Ray cluster has {name} {getattr(there, name)}; expected "
                    f"{getattr(here, name)}, as the command has. Next: install the same versions "
                    "on every node, then give the same command: it goes on."
                )

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._line.close()
        self._child.join(LEAVE_S)
        if self._child.is_alive():
            self._child.kill()
            self._child.join()
        self._folder.cleanup()


def serve(line: Connection, address: str, settings: str, log: Path) -> None:
    """The child's whole life: connect, hand out what the line brings, leave once it is closed."""
    detach(log)
    import ray

    try:
        try:
            connect_ray(ray, address, log.parent)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            line.send(one_line(error))
            return
        line.send(READY)
        with suppress(EOFError, OSError):  # the parent has gone, or has had enough
            _relay(ray, line, settings)
    finally:
        ray.shutdown()


def _relay(ray: Any, line: Connection, settings: str) -> None:
    """Questions in, answers out. A lost one is not asked again: the pool does that."""
    on_gpu = TurnSettings.model_validate_json(settings).verification.device == "cuda"
    task = ray.remote(max_retries=0, num_cpus=1, num_gpus=1 if on_gpu else 0)(answer_turn)
    running: dict[Any, int] = {}
    while True:
        while line.poll(0 if running else None):
            number, question = line.recv()
            running[task.remote(settings, question)] = number
        done, _ = ray.wait(list(running), num_returns=1, timeout=POLL_S)
        for reference in done:
            line.send(_told(ray, running.pop(reference), reference))


def _told(ray: Any, number: int, reference: Any) -> RayReply:
    try:
        return RayReply(number, ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        return RayReply(number, None, one_line(error.cause or error))
    except ray.exceptions.RayError as error:
        return RayReply(number, None, f"its worker or its node was lost ({type(error).__name__})")


def answer_turn(settings: str, question: str) -> str:
    """On a worker: one answer. A candidate that hangs past all limits ends the worker."""
    faulthandler.dump_traceback_later(ANSWER_S, exit=True, file=STDERR)
    try:
        found = _judge(settings).answer(TurnRequest.model_validate_json(question))
        return found.model_dump_json()
    finally:
        faulthandler.cancel_dump_traceback_later()


@cache
def _judge(settings: str) -> TurnJudge:
    """Ray keeps a worker for the next task: what it has loaded stays."""
    folder = tempfile.mkdtemp(prefix="agentkernel-turns-")
    return TurnJudge(TurnSettings.model_validate_json(settings), Path(folder))
