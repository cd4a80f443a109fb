"""The worker: judges, times and searches for another machine, over its stdin and stdout.

It ends, with all that it started, as soon as its stdin closes or nobody has said a word for a
while.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from agentkernel.agents.instruments import Instruments, local_instruments
from agentkernel.compiler.isolated_step import Empty
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import (
    AgentKernelError,
    DiskFailure,
    one_line,
    raised_at,
)
from agentkernel.domain.problem import Problem
from agentkernel.remote import wire
from agentkernel.remote.problem_files import restored
from agentkernel.remote.session_folder import SessionFolder, open_session
from agentkernel.runtime.machine import installed_versions, local_gpu
from agentkernel.runtime.stages import StageClock, recording, stage
from agentkernel.storage.files import FULL, is_machine_fault
from agentkernel.tools.judge.settings import judge_sha256
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.sandbox.session import limited_time
from agentkernel.tools.search.space import Space
from agentkernel.tools.targets import find_target

GRACE_S = 10.0
"""What closes by itself has so long; then the process group is killed."""
Value = TypeVar("Value")


def serve(session: str) -> None:
    """Answer questions until stdin closes."""
    with contextlib.suppress(OSError):  # it leads its group already
        os.setpgrp()
    with own_streams() as (questions, answers):
        line = WorkerLine(questions, answers)
        try:
            with open_session(session) as folder:
                line.folder = folder
                line.begin()
                _work(line, folder)
        except KeyboardInterrupt:
            pass
        except AgentKernelError as error:  # the session has no folder
            line.tell(refusal("", error))
        finally:
            if line.over and line.folder is not None:
                line.folder.remove()


@contextmanager
def own_streams() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """stdin and stdout for the two machines alone: what a module prints goes to stderr, and what it
    reads is empty."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    with os.fdopen(os.dup(0), "rb", buffering=0) as given, os.fdopen(os.dup(1), "wb") as told:
        os.dup2(nowhere, 0)
        os.dup2(2, 1)
        os.close(nowhere)
        yield given, told


class WorkerLine:
    """The worker's end: questions in their order, and whatever is said to the other machine."""

    def __init__(self, given: IO[bytes], told: IO[bytes]) -> None:
        self._given, self._told = given, told
        self._telling = threading.Lock()
        self.questions: queue.Queue[wire.Asked] = queue.Queue()
        self.folder: SessionFolder | None = None
        self.over = False
        """The other machine said that nothing more comes."""

    def begin(self) -> None:
        """Say hello, and listen from now on."""
        gpu = local_gpu()
        self.tell(
            wire.Hello(
                versions=installed_versions(),
                judge_sha256=judge_sha256(),
                gpu=None if gpu is None else gpu.name,
            )
        )
        threading.Thread(target=self._listen, name="remote line", daemon=True).start()

    def tell(self, value: Frozen) -> None:
        """Say one line. Nobody may be there any more: then this process is about to end."""
        with self._telling, contextlib.suppress(OSError, ValueError):
            self._told.write(value.model_dump_json().encode() + b"\n")
            self._told.flush()

    def _listen(self) -> None:
        """Take lines in until the end of the line, a silence or a goodbye; then end it all."""
        try:
            self._take_lines()
        finally:
            _end()

    def _take_lines(self) -> None:
        rest = b""
        with selectors.DefaultSelector() as ready:
            ready.register(self._given, selectors.EVENT_READ)
            while not self.over and ready.select(wire.SILENCE_S):
                found = self._given.read(1 << 20)
                if not found:
                    break
                *lines, rest = (rest + found).split(b"\n") if b"\n" in found else [rest + found]
                for text in lines:
                    self._take(text)

    def _take(self, text: bytes) -> None:
        try:
            said = wire.TO_WORKER.validate_json(text)
        except ValidationError:
            return  # of another version, or half a line: whoever asked asks again
        match said:
            case wire.Asked():
                self.questions.put(said)
            case wire.Texts():
                self._keep(said)
            case wire.Bye():
                self.over = True
            case _:
                pass

    def _keep(self, said: wire.Texts) -> None:
        assert self.folder is not None
        for digest, text in said.texts.items():
            try:
                self.folder.add_text(digest, text)
            except AgentKernelError as error:
                self.tell(refusal("", error))


def _end() -> None:
    """End this process in the middle of whatever it does, with all that it started."""

    def kill() -> None:
        os.killpg(0, signal.SIGKILL)

    timer = threading.Timer(GRACE_S, kill)
    timer.daemon = True
    timer.start()
    os.kill(os.getpid(), signal.SIGTERM)


TOLD_EVERY_S = 10.0


class ToldStages(StageClock):
    """Stages that are told as they begin."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell_stage = tell
        self._told_at = time.monotonic()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The stage `name`, told."""
        self._tell_stage(name)
        with super().stage(name):
            yield

    def at(self, text: str) -> None:
        """What the stage is at, told every few seconds."""
        super().at(text)
        now = time.monotonic()
        if now - self._told_at >= TOLD_EVERY_S:
            self._told_at = now
            self._tell_stage(self.doing)


def _work(line: WorkerLine, folder: SessionFolder) -> None:
    asked: list[str] = [""]

    def tell_stage(name: str) -> None:
        line.tell(wire.StageBegun(id=asked[0], stage=name))

    with ToolRoom(folder) as room, recording(ToldStages(tell_stage)):
        while True:
            question = line.questions.get()
            asked[0] = question.id
            line.tell(_reply(question, folder, room))


def _reply(asked: wire.Asked, folder: SessionFolder, room: ToolRoom) -> Frozen:
    """The answer, kept before it is said; what is missing for it; or why there is none."""
    known = folder.finished(asked.id)
    if known is not None:
        return known
    wanted = wire.hashes(asked.question) | wire.hashes(asked.subject)
    if missing := folder.lacks(wanted):
        return wire.Missing(id=asked.id, sha256=missing)
    try:
        texts = folder.texts(wanted)
        question = wire.QUESTION.validate_json(json.dumps(wire.unpacked(asked.question, texts)))
        end = None if asked.left_s is None else time.monotonic() + asked.left_s
        with limited_time(lambda: float("inf") if end is None else end - time.monotonic()):
            answer = room.answer(question, wire.unpacked(asked.subject, texts))
        found = wire.Answered(id=asked.id, answer=answer)
        folder.keep(found)
    except Exception as error:  # noqa: BLE001 - a strange module may raise anything; it is told
        return refusal(asked.id, error)
    return found


def refusal(asked: str, error: Exception) -> wire.Refused:
    """Why there is no answer, with the class of the error where it is one of ours."""
    if isinstance(error, AgentKernelError):
        return wire.Refused(id=asked, error=type(error).__name__, text=str(error))
    if isinstance(error, OSError) and is_machine_fault(error):
        full = error.errno in FULL
        said = "No room left on a disk" if full else f"The machine fails: {error.strerror}"
        next_step = "make room there" if full else "fix it"
        return wire.Refused(id=asked, error=DiskFailure.__name__, text=f"{said}. Next: {next_step}")
    text = f"{type(error).__name__}: {one_line(error)} ({raised_at(error)})"
    return wire.Refused(id=asked, error="", text=text)


@dataclass(frozen=True)
class OpenSubject:
    """A subject that was asked about: its problem, its instruments, and the folder of its files."""

    key: str
    stack: ExitStack
    loaded: LoadedProblem
    tools: Instruments
    files: Path

    def problem(self, asked: Problem) -> LoadedProblem:
        """The subject's own problem, or a step of it, which is called on tensors of its own."""
        if asked.sha256 == self.loaded.problem.sha256:
            return self.loaded
        if not asked.path:
            return LoadedProblem(asked, Empty)
        return restored(asked, self.files)


class ToolRoom:
    """The instruments of the subject that was asked about last. A context manager."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        self._open: OpenSubject | None = None

    def __enter__(self) -> ToolRoom:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._open is not None:
            self._open.stack.close()
            self._open = None

    def answer(self, question: wire.Question, subject: JsonValue) -> JsonValue:
        """What the question asks for, as JSON."""
        if isinstance(question, wire.ResolveTarget):
            return _json(wire.RESOLVED, find_target(question.target))
        opened = self._opened(subject)
        tools = opened.tools
        match question:
            case wire.Plain(kind="begin"):
                tools.begin()
                return None
            case wire.Plain(kind="ready"):
                return tools.ready()
            case wire.Plain(kind="baselines"):
                with stage("baselines"):
                    return _json(wire.BASELINES, tools.baselines())
            case wire.Plain(kind="quick times"):
                return _json(wire.QUICK, tools.quick_times())
            case wire.Plain():
                return tools.searcher.most_sampled
            case wire.Judge():
                with stage("judge"):
                    found = tools.judge(question.candidate, question.settings)
                return _json(wire.VERDICT, found)
            case wire.TakeProfile():
                with stage("profile"):
                    return _json(wire.PROFILE, tools.profile(question.candidate))
            case _:
                return _search(question, opened)

    def _opened(self, subject: JsonValue) -> OpenSubject:
        key = sha256_text(json.dumps(subject, sort_keys=True))
        if self._open is None or self._open.key != key:
            self.__exit__()
            given = wire.SUBJECT.validate_json(json.dumps(subject))
            files = self._folder.add_files(key, given.files)
            loaded = restored(given.problem, files)

            @cache
            def captured() -> Captured:
                with stage("capture"):
                    return capture(loaded)

            stack = ExitStack()
            resolved = find_target(given.target)
            tools = stack.enter_context(
                local_instruments(loaded, captured, resolved, given.settings)
            )
            self._open = OpenSubject(key, stack, loaded, tools, files)
        return self._open


def _search(question: wire.Rank | wire.Tune, opened: OpenSubject) -> JsonValue:
    searcher = opened.tools.searcher
    with stage("search"):
        if isinstance(question, wire.Rank):
            space = question.space
            ranked = searcher.rank(
                opened.problem(space.problem), space.sources, space.labels, space.schedules,
                question.target,
            )  # fmt: skip
            return _json(wire.TRIALS, ranked)
        spaces = [
            Space(
                opened.problem(item.problem), item.sources, item.labels, item.schedules,
                item.segment, item.hints, item.matrix, item.work_us,
            )
            for item in question.spaces
        ]  # fmt: skip
        return _json(wire.TRIALS_BY_SPACE, searcher.tune(spaces, question.target))


def _json(kind: TypeAdapter[Value], value: Value) -> JsonValue:
    found: JsonValue = json.loads(kind.dump_json(value))
    return found
