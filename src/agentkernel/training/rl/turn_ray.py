"""How do the workers of a Ray cluster judge the answers of a training?

As for a night (`nights.ray_driver`), a process of its own talks to Ray, so that Ray's end is one
line here and not this process's end.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from agentkernel.domain.errors import MissingDependency, one_line
from agentkernel.runtime.ray_cluster import LOCAL, OBJECT_STORE_BYTES, SETTINGS, SHARED, last_words
from agentkernel.runtime.versions import installed_versions
from agentkernel.training.pair_process import READY, WorkerFailed
from agentkernel.training.rl.turn_pool import ANSWER_S
from agentkernel.training.rl.turn_work import TurnAnswer, TurnJudge, TurnRequest, TurnSettings

CONNECT_S = 120.0
"""A cluster answers by then, or there is none: Ray itself would wait on."""
LEAVE_S = 30.0
POLL_S = 0.1
STDOUT, STDERR = 1, 2


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
        self._folder = _folder()
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
    os.setsid()  # Ctrl-C is the parent's, which closes the line
    threading.Thread(target=_end_after_parent, daemon=True).start()
    with log.open("ab") as file:
        os.dup2(file.fileno(), STDOUT)
        os.dup2(file.fileno(), STDERR)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    try:
        try:
            _connect(ray, address, log.parent)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            line.send(one_line(error))
            return
        line.send(READY)
        with suppress(EOFError, OSError):  # the parent has gone, or has had enough
            _relay(ray, line, settings)
    finally:
        ray.shutdown()


def _end_after_parent() -> None:
    """Ray may be in the middle of a call that does not end when the parent has been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _connect(ray: Any, address: str, folder: Path) -> None:
    if address != LOCAL:
        ray.init(address=address, log_to_driver=False)
        return
    ray.init(
        # Without this word Ray takes any cluster that it finds here.
        address=LOCAL,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=str(folder),
    )


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


def _folder() -> tempfile.TemporaryDirectory[str]:
    """For what Ray writes. Its sockets lie there, whose paths may not be long."""
    parent = os.environ.get("RAY_TMPDIR", "/tmp")
    return tempfile.TemporaryDirectory(prefix="ak-ray-", dir=parent, ignore_cleanup_errors=True)


__all__ = ["RayBackend", "answer_turn", "serve"]
