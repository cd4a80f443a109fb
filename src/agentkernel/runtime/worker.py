"""Worker processes that answer requests over a pipe: a death is a value, and costs one request.

`python -m agentkernel.runtime.worker MODULE:FUNCTION FD ARGUMENTS` is such a process: it calls
the function with its end of the pipe, and ends as soon as its parent has.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import TypeAdapter

from agentkernel.domain.base import Frozen
from agentkernel.domain.errors import AgentKernelError, one_line
from agentkernel.domain.plain_text import plain

MODULE = "agentkernel.runtime.worker"
LOG_CHARACTERS = 2000
DIRECT_BYTES = 1 << 16
"""So much a socket holds before its reader reads."""
EXIT_S = 1.0
"""A process that has closed its end of the pipe is gone by then."""
POLL_S = 0.1
"""How often a wait looks whether it has been called off."""


class WorkerDied(NamedTuple):
    """No answer, and no process any more. `exit_code` is None where the answer did not come in
    `limit_s`; `log` is the end of what the process printed."""

    exit_code: int | None
    limit_s: float
    log: str

    @property
    def reason(self) -> str:
        """How it ended, on one line."""
        if self.exit_code is None:
            return f"no answer within {self.limit_s:g} s"
        return one_line(f"the process ended with {self.exit_code}: {self.log[-300:]}")


class ChildProcess:
    """A process that runs `entry` ("module:function") with its end of a pipe and `arguments`.

    Frames are bytes; what it prints goes to a log, and can not get into the pipe. `defaults` are
    variables of its environment unless set here, `variables` are set; each of `folders` names a
    folder of its own. After an answer that does not come in time, or at all, it is gone for good.
    """

    def __init__(
        self,
        entry: str,
        arguments: Sequence[str] = (),
        *,
        defaults: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        folders: Sequence[str] = (),
    ) -> None:
        self._line, theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._folder = tempfile.TemporaryDirectory(
            prefix="agentkernel-worker-", ignore_cleanup_errors=True
        )
        self._closed = False
        self._sender: threading.Thread | None = None
        paths = os.pathsep.join(path for path in sys.path if path)
        own = {name: os.path.join(self._folder.name, name.lower()) for name in folders}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, entry, str(theirs.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                env={
                    **(defaults or {}),
                    **os.environ,
                    "PYTHONPATH": paths,
                    **(variables or {}),
                    **own,
                },
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process, as this one numbers it."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once it died or was ended."""
        return self._process.poll() is None

    def send(self, frame: bytes) -> None:
        """Send a request, whose answer `receive` takes. A large one waits for its reader in a
        thread of its own, so that limit and stop of `receive` hold for it too."""
        if len(frame) <= DIRECT_BYTES:
            self._send(frame)
        else:
            self._sender = threading.Thread(target=self._send, args=(frame,), daemon=True)
            self._sender.start()

    def _send(self, frame: bytes) -> None:
        with suppress(OSError):  # it is gone, which whoever receives is told
            self._line.send_bytes(frame)

    def receive(self, limit_s: float, stop: threading.Event | None = None) -> bytes | WorkerDied:
        """The next answer; past `limit_s`, or once `stop` is set, the process is killed."""
        try:
            if not self._arrives(limit_s, stop):
                self._end()
                return WorkerDied(None, limit_s, self._tail())
            return self._line.recv_bytes()
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_S)
            self._end()
            return WorkerDied(self._process.returncode, limit_s, self._tail())

    def answered(self) -> bool:
        """True where `receive` would not wait: an answer is there, or its end."""
        try:
            return self._line.poll(0)
        except (EOFError, OSError):
            return True

    def ask(
        self, frame: bytes, limit_s: float, stop: threading.Event | None = None
    ) -> bytes | WorkerDied:
        """Send a request and wait for its answer, as `receive` does."""
        self.send(frame)
        return self.receive(limit_s, stop)

    def _arrives(self, limit_s: float, stop: threading.Event | None) -> bool:
        if stop is None:
            return self._line.poll(limit_s)
        end = time.monotonic() + limit_s
        while not stop.is_set() and (left_s := end - time.monotonic()) > 0:
            if self._line.poll(min(POLL_S, left_s)):
                return True
        return False

    def kill(self) -> None:
        """End it at once, with what it started; from any thread."""
        if not self._closed:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self) -> None:
        self.kill()
        self._process.wait()

    def _tail(self) -> str:
        if self._log.closed:
            return ""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - LOG_CHARACTERS))
        return plain(self._log.read().decode(errors="replace"))

    def close(self) -> None:
        """End it, with what it started, and leave nothing open."""
        self._end()
        self._closed = True
        if self._sender is not None:
            self._sender.join()
        self._line.close()
        self._log.close()
        self._folder.cleanup()


RequestT = TypeVar("RequestT", bound=Frozen)
AnswerT = TypeVar("AnswerT")
READY, ANSWERED, RAISED = b"ready", b"=", b"!"
START_S = 180.0
"""What a process may take to import torch and TorchInductor on a busy machine."""
MOST_ASKED = 200
"""Then a fresh process goes on: modules that were loaded, and what torch keeps of their graphs,
never leave a process."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Several workers stand side by side, and the modules are small."""
FOLDERS = ("TORCHINDUCTOR_CACHE_DIR",)


class WorkerFailed(Frozen):
    """No answer, and why: the work raised, or its process died or hung."""

    kind: Literal["failed"] = "failed"
    reason: str


class Worker(Generic[RequestT, AnswerT]):
    """A process whose `entry` calls `serve` with `settings`; the next request starts another where
    it is gone. `answers` reads what it answers; `defaults` and `variables` as in ChildProcess."""

    def __init__(
        self,
        entry: str,
        settings: Sequence[str],
        answers: TypeAdapter[AnswerT],
        defaults: Mapping[str, str] = ONE_THREAD,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._start = partial(
            ChildProcess, entry, settings, defaults=defaults, variables=variables, folders=FOLDERS
        )
        self._answers = answers
        self._asked = 0
        self._child: ChildProcess | None = None
        self._killed = False
        self._lock = threading.Lock()

    def ask(self, request: RequestT, timeout_s: float) -> AnswerT | WorkerFailed:
        """The answer, or why there is none; a process that dies or takes more than `timeout_s` is
        gone. One that has not begun yet has START_S to begin."""
        begun = self._begun()
        if not isinstance(begun, ChildProcess):
            return self._failed(begun)
        reply = begun.ask(request.model_dump_json().encode(), timeout_s)
        if isinstance(reply, WorkerDied):
            return self._failed(reply)
        self._asked += 1
        if self._asked >= MOST_ASKED:
            self._drop()
        if reply[:1] == RAISED:
            return WorkerFailed(reason=reply[1:].decode())
        return self._answers.validate_json(reply[1:])

    def _begun(self) -> ChildProcess | WorkerDied | None:
        """None where it has been killed."""
        with self._lock:
            if self._killed or self._child is not None:
                return self._child
            self._child = child = self._start()
        ready = child.receive(START_S)
        return ready if isinstance(ready, WorkerDied) else child

    def _failed(self, died: WorkerDied | None) -> WorkerFailed:
        self._drop()
        return WorkerFailed(reason="it was called off" if died is None else died.reason)

    def kill(self) -> None:
        """End what is at work, from another thread, and let nothing begin until `close`: whoever
        asks gets WorkerFailed."""
        with self._lock:
            self._killed = True
            if self._child is not None:
                self._child.kill()

    def close(self) -> None:
        """End the process and all that it started; the next request starts another."""
        self._drop()
        self._killed = False

    def _drop(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.close()
            self._child, self._asked = None, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def serve(line: Connection, request: type[RequestT], answer: Callable[[RequestT], Frozen]) -> None:
    """Answer the requests of a Worker until it closes the pipe. What the work raises is told; what
    it ends, or hangs, is the parent's to see."""
    warnings.simplefilter("ignore")
    line.send_bytes(READY)
    serve_frames(line, lambda frame: _reply(answer, request.model_validate_json(frame)))


def serve_frames(line: Connection, answer: Callable[[bytes], bytes]) -> None:
    """Answer frame after frame until the parent closes the pipe."""
    with suppress(EOFError):
        while True:
            frame = line.recv_bytes()
            line.send_bytes(answer(frame))


def _reply(answer: Callable[[RequestT], Frozen], request: RequestT) -> bytes:
    try:
        return ANSWERED + answer(request).model_dump_json().encode()
    except AgentKernelError as error:
        return RAISED + one_line(error).encode()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a strange module may raise anything
        return RAISED + one_line(f"{type(error).__name__}: {error}").encode()


def end_with_parent(line: int) -> None:
    """From now on this process and what it started end as soon as the other end of `line` (a pipe
    or socket that the parent holds) closes, in the middle of a compilation too. It must lead its
    process group."""
    ends = select.poll()
    ends.register(line, 0)

    def watch() -> None:
        ends.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def end_after_parent(leave_s: float = 0.0) -> None:
    """A child of multiprocessing ends `leave_s` after its parent, whatever it is in the middle of,
    also where that was killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            time.sleep(leave_s)
            os._exit(1)

    threading.Thread(target=watch, name="end-after-parent", daemon=True).start()


def main(entry: str, number: str, *arguments: str) -> None:
    """Run `entry` on the pipe of that number."""
    line = Connection(int(number))
    end_with_parent(line.fileno())
    module, _, function = entry.partition(":")
    getattr(importlib.import_module(module), function)(line, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
