"""The line to a worker on another machine: opened with ssh, and opened again where it drops."""

from __future__ import annotations

import json
import queue
import secrets
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from agentkernel.domain import errors
from agentkernel.domain.base import Frozen, sha256_text
from agentkernel.domain.errors import AgentKernelError, RemoteUnavailable, one_line
from agentkernel.remote import wire
from agentkernel.remote.address import Address
from agentkernel.remote.ssh import (
    FAILED,
    install_line,
    is_refusal,
    python_command,
    ssh_failure,
    start_ssh,
    url_of,
    worker_failure,
)
from agentkernel.tools.judge.settings import judge_sha256
from agentkernel.version import __version__

START_S = 180.0
"""What the worker may take to import torch on a busy machine."""
CLOSE_S = 15.0
AGAIN_S = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
"""Waits before each try to open a line that dropped."""
MOST_LOST = 3
"""Lines that one question may cost: it may be what breaks them."""
LOG_CHARACTERS = 8000
MOST_LINE = 2**28
"""Bytes of an answer."""
Answer = TypeVar("Answer")
Tell = Callable[[str, str], None]
"""Takes the name of a machine, and what it does now or what became of the line to it."""


class LineLost(Exception):
    """The connection dropped; `log` is what ssh said."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


class SshProcess:
    """One connection: lines in both directions, and the end of what it printed on stderr."""

    def __init__(self, address: Address, session: str) -> None:
        command = python_command(address, "-m", "agentkernel", "remote-worker", session)
        self._ssh = start_ssh(address, command)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._sending = threading.Lock()
        self._log = ""
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=work, name="remote line", daemon=True)
            for work in (self._read, self._read_log, self._stay_alive)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """Of ssh on this machine."""
        return self._ssh.pid

    def send(self, value: Frozen) -> None:
        """Say one line. That nobody listens any more shows when an answer is waited for."""
        assert self._ssh.stdin is not None
        with self._sending, suppress(OSError, ValueError):
            self._ssh.stdin.write(value.model_dump_json().encode() + b"\n")
            self._ssh.stdin.flush()

    def next_line(self, limit_s: float | None) -> bytes | None:
        """The next line; None at the end. Raises queue.Empty after `limit_s`."""
        return self._lines.get(timeout=limit_s)

    def ended(self) -> tuple[int, str]:
        """The exit code of ssh, and the end of its stderr, once there is no further line."""
        with suppress(subprocess.TimeoutExpired):
            self._ssh.wait(CLOSE_S)
        self._threads[1].join(1.0)  # a child of the worker may hold it open
        self.close()
        return self._ssh.returncode, self._log

    def close(self) -> None:
        """End the worker by closing its stdin, and ssh with it."""
        self._ended.set()
        with self._sending, suppress(OSError):
            assert self._ssh.stdin is not None
            self._ssh.stdin.close()
        try:
            self._ssh.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()
        for thread in self._threads:
            thread.join(1.0)

    def _read(self) -> None:
        assert self._ssh.stdout is not None
        with suppress(OSError, ValueError), self._ssh.stdout as stream:
            while line := stream.readline(MOST_LINE):
                self._lines.put(line)
        self._lines.put(None)

    def _read_log(self) -> None:
        assert self._ssh.stderr is not None
        with suppress(OSError, ValueError), self._ssh.stderr as stream:
            while text := stream.readline(LOG_CHARACTERS):
                self._log = (self._log + text.decode(errors="replace"))[-LOG_CHARACTERS:]

    def _stay_alive(self) -> None:
        while not self._ended.wait(wire.ALIVE_S):
            self.send(wire.Alive())


class RemoteLine:
    """Questions to one worker and their answers; a context manager.

    `tell` takes what the worker does now. A question whose line drops is asked again
    under the same id, and answered once. For one thread at a time: others wait.
    """

    def __init__(self, address: Address, tell: Tell) -> None:
        self.address = address
        self._tell = tell
        self._session = secrets.token_hex(16)
        self._asked = 0
        self._asking = threading.Lock()
        self._process: SshProcess | None = None
        self.hello = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Of the ssh at work; None where there is none."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the worker; it keeps nothing."""
        if self._process is not None:
            self._process.send(wire.Bye())
            self._process.close()
            self._process = None

    def ask(
        self,
        question: wire.Question,
        answer: TypeAdapter[Answer],
        subject: JsonValue = None,
        left_s: float | None = None,
    ) -> Answer:
        """The answer. Raises the AgentKernelError that the worker met, or RemoteUnavailable."""
        with self._asking:
            texts: dict[str, str] = {}
            body = wire.packed(json.loads(question.model_dump_json()), texts)
            about = wire.packed(subject, texts)
            self._asked += 1
            digest = sha256_text(json.dumps([body, about], sort_keys=True))
            asked = wire.Asked(
                id=f"{self._asked}-{digest}", question=body, subject=about, left_s=left_s
            )
            found = self._answer(asked, texts, question.kind)
        return answer.validate_json(json.dumps(found.answer))

    def _answer(self, asked: wire.Asked, texts: dict[str, str], what: str) -> wire.Answered:
        began, left_s = time.monotonic(), asked.left_s
        for lost in range(1, MOST_LOST + 1):
            try:
                return self._exchange(asked, texts)
            except LineLost as error:
                self._process = None
                label, said = self.address.label, one_line(error.log.strip() or "no word", 200)
                if lost == MOST_LOST:
                    raise RemoteUnavailable(
                        f"The line to {label} was lost {lost} times at the question {what!r}: "
                        f"{said}. Next: try '{self.address.ssh_words}'; 'agentkernel resume' goes "
                        "on with a run."
                    ) from error
                self._tell(label, f"the line was lost ({said}), trying again")
                self._open_again()
                self._tell(label, f"connected again, asking again: {what}")
                if left_s is not None:
                    asked = asked.evolve(left_s=left_s - (time.monotonic() - began))
        raise AssertionError("the last loss is raised")

    def _exchange(self, asked: wire.Asked, texts: dict[str, str]) -> wire.Answered:
        if self._process is None:
            self._open_again()
        assert self._process is not None
        self._process.send(asked)
        while True:
            said = self._next(None)
            match said:
                case wire.Missing(id=asked.id):
                    lacking = {item: texts[item] for item in said.sha256}
                    self._process.send(wire.Texts(texts=lacking))
                    self._process.send(asked)
                case wire.StageBegun(id=asked.id):
                    self._tell(self.address.label, said.stage)
                case wire.Answered(id=asked.id):
                    return said
                case wire.Refused() if said.id in ("", asked.id):
                    raise self._error(said)
                case _:
                    pass  # about a question that nobody waits for any more

    def _error(self, said: wire.Refused) -> AgentKernelError:
        label = self.address.label
        kind = getattr(errors, said.error, None)
        if not isinstance(kind, type) or not issubclass(kind, AgentKernelError):
            return RemoteUnavailable(f"The worker on {label} failed: {one_line(said.text, 600)}.")
        return kind(f"{label}: {one_line(said.text, 2000)}")

    def _next(self, limit_s: float | None) -> wire.FromWorker | None:
        """The next line of the worker; None for one that is none. Raises LineLost,
        RemoteUnavailable."""
        assert self._process is not None
        line = self._process.next_line(limit_s)
        if line is None:
            code, log = self._process.ended()
            self._process = None
            if code == FAILED:
                raise LineLost(log)
            raise worker_failure(self.address, code, log)
        try:
            return wire.FROM_WORKER.validate_json(line)
        except ValidationError:
            version = wire.foreign_version(line)
            if version is not None:
                raise self._other(version, __version__) from None
            return None  # what a login shell prints

    def _open(self) -> wire.Hello:
        """Start a worker. Raises RemoteUnavailable."""
        try:
            return self._opened()
        except LineLost as error:
            raise ssh_failure(self.address, error.log) from error

    def _open_again(self) -> None:
        """Start a worker in place of one whose line dropped. Raises RemoteUnavailable."""
        failed = LineLost("")
        for wait_s in AGAIN_S:
            time.sleep(wait_s)
            try:
                self._opened()
                return
            except LineLost as error:
                if is_refusal(error.log):
                    raise ssh_failure(self.address, error.log) from error
                failed = error
        raise ssh_failure(self.address, failed.log) from failed

    def _opened(self) -> wire.Hello:
        self._process = SshProcess(self.address, self._session)
        end = time.monotonic() + START_S
        try:
            while True:
                said = self._next(max(0.0, end - time.monotonic()))
                if isinstance(said, wire.Hello):
                    self._check(said)
                    return said
                if isinstance(said, wire.Refused):
                    raise self._error(said)
        except queue.Empty as error:
            raise RemoteUnavailable(
                f"The worker on {self.address.label} says nothing within {START_S:g} s. "
                f"Next: see 'agentkernel doctor --remote {url_of(self.address)!r}'."
            ) from error
        except BaseException:
            self.close()
            raise

    def _check(self, hello: wire.Hello) -> None:
        there = hello.versions.agentkernel
        if there != __version__:
            raise self._other(there, __version__)
        if hello.judge_sha256 != judge_sha256():
            expected = f"the same files as here ({__version__})"
            raise self._other(f"{there} with another judge", expected)

    def _other(self, there: str, expected: str) -> RemoteUnavailable:
        return RemoteUnavailable(
            f"{self.address.label} has agentkernel {one_line(there, 60)}. Expected {expected}. "
            f"Next, in the clone: {install_line(self.address)}."
        )
