"""How is a process asked that may hang or die at any question, so that only that one is lost?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from pydantic import TypeAdapter

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import one_line
from agentkernel.tools.sandbox.waiting import readable
from agentkernel.training.pair_process import (
    READY,
    WorkerAnswer,
    WorkerFailed,
    WorkerRequest,
    WorkKind,
)

MODULE = "agentkernel.training.pair_process"
START_S = 180.0
"""What a process may take to import torch and TorchInductor on a busy machine."""
MOST_ASKED = 200
"""Then a fresh process goes on: modules that were loaded, and what torch keeps of their graphs,
never leave a process."""
LOG_CHARACTERS = 300
THREADS = "1"
"""Of torch in a process, unless the environment says another number: several stand side by side,
and the modules are small."""
ANSWERS: TypeAdapter[WorkerAnswer] = TypeAdapter(WorkerAnswer)
RequestT = TypeVar("RequestT", bound=Frozen)
AnswerT = TypeVar("AnswerT")


class WorkerProcess(Generic[RequestT, AnswerT]):
    """A process of `module`, run with `arguments` and the numbers of its two pipes; the next
    question starts another where it is gone. `told` reads its answers, a line of JSON each."""

    def __init__(self, module: str, arguments: Sequence[str], told: TypeAdapter[AnswerT]) -> None:
        self._module = module
        self._arguments = tuple(arguments)
        self._told = told
        self._process: _Process | None = None

    def ask(self, question: RequestT, timeout_s: float) -> AnswerT | WorkerFailed:
        """The answer, or Failed where the process dies or takes more than `timeout_s`."""
        process = self._ready()
        if isinstance(process, WorkerFailed):
            return process
        line = process.line_after(question.model_dump_json() + "\n", timeout_s)
        if line is None:
            return self._lost(process, timeout_s)
        process.asked += 1
        if process.asked >= MOST_ASKED:
            self.close()
        return self._told.validate_json(line)

    def _ready(self) -> _Process | WorkerFailed:
        if self._process is None:
            self._process = process = _Process(self._module, self._arguments)
            if process.line_after("", START_S) != READY:
                return self._lost(process, START_S)
        return self._process

    def _lost(self, process: _Process, timeout_s: float) -> WorkerFailed:
        ended = process.ended()
        self.close()
        if ended is None:
            return WorkerFailed(reason=f"no answer within {timeout_s:g} s")
        return WorkerFailed(reason=one_line(f"the process ended with {ended}: {process.log_end}"))

    def kill(self) -> None:
        """End what is at work, from another thread: whoever asked gets Failed."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process and all that it started."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class PairWorker(WorkerProcess[WorkerRequest, WorkerAnswer]):
    """A process for one kind of work of `pair_process`."""

    def __init__(self, work: WorkKind, settings: str) -> None:
        super().__init__(MODULE, (work, settings), ANSWERS)


class _Process:
    """The process with both its pipes; nothing that a module prints or reads gets into them."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self.asked = 0
        self.log_end = ""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        theirs_in, self._questions = os.pipe()
        self._answers, theirs_out = os.pipe()
        self._folder = tempfile.TemporaryDirectory(prefix="agentkernel-pairs-")
        self._left = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, str(theirs_in), str(theirs_out)],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": THREADS}
            | os.environ
            | {"TORCHINDUCTOR_CACHE_DIR": self._folder.name},
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def line_after(self, text: str, timeout_s: float) -> str | None:
        """The next line, once `text` is sent; None where there is none in time or ever."""
        end = time.monotonic() + timeout_s
        try:
            self._send(text.encode())
            while b"\n" not in self._left:
                wait_s = end - time.monotonic()
                if wait_s <= 0 or not readable((self._answers,), wait_s):
                    return None
                piece = os.read(self._answers, 1 << 16)
                if not piece:
                    return None
                self._left += piece
        except OSError:  # it is gone, or was closed meanwhile
            return None
        line, _, self._left = self._left.partition(b"\n")
        return line.decode()

    def _send(self, text: bytes) -> None:
        while text:
            text = text[os.write(self._questions, text) :]

    def ended(self) -> int | None:
        """How it ended; None while it lives."""
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End it at once, with what it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it, keep what it said last, and leave nothing open."""
        self.kill()
        self._process.wait()
        self._log.seek(0)
        self.log_end = self._log.read()[-LOG_CHARACTERS:].decode(errors="replace")
        for end in (self._questions, self._answers):
            os.close(end)
        self._log.close()
        self._folder.cleanup()
