"""How does the parent start, ask and end a process that holds eager or a compiled module?"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from multiprocessing.connection import Pipe
from types import TracebackType
from typing import Self, cast

from agentkernel.domain.plain_text import plain
from agentkernel.tools.profiler.compiling import compile_threads
from agentkernel.tools.profiler.rounds import SideFailed
from agentkernel.tools.sandbox.protocol import JSON

LOG_CHARS = 2000


class BaselineProcess:
    """One process of `agentkernel.tools.profiler.twin`; a `Line` for RemoteSide.

    Requests can be posted ahead: it works on them while the caller does something else, and `ask`
    for the same thing takes the answer. After an answer that does not come in time, or at all, the
    process is gone for good.
    """

    def __init__(self) -> None:
        self._line, theirs = Pipe()
        self._posted: deque[str] = deque()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        paths = [path for path in sys.path if path]
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "agentkernel.tools.profiler.twin",
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                env={
                    "TORCHINDUCTOR_COMPILE_THREADS": str(compile_threads()),
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(paths),
                },
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """False once it died or was ended."""
        return self._process.poll() is None

    @property
    def pids(self) -> list[int]:
        """The process, as this one numbers it."""
        return [self._process.pid]

    def post(self, request: Mapping[str, object]) -> None:
        """Send a small request now and leave its answer to the `ask` with the same words."""
        with contextlib.suppress(OSError):
            self._line.send_bytes(_packed(request))
            self._posted.append(_words(request))

    def ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, JSON] | SideFailed:
        """Send one request and wait for its answer; past `timeout_s` the process is killed.

        What was posted before and is not this request is done first, its answer forgotten.
        """
        while self._posted:
            words, answer = self._posted.popleft(), self._receive(timeout_s)
            if words == _words(request):
                return answer
        if not self.alive:
            return self._lost("died", "")
        try:
            self._line.send_bytes(_packed(request))
        except OSError:
            return self._broken()
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> dict[str, JSON] | SideFailed:
        """The next answer."""
        if self._line.closed:
            return self._lost("died", "")
        try:
            if not self._line.poll(timeout_s):
                self.close()
                return self._lost("timeout", f"no answer within {timeout_s:g} s")
            reply = cast("dict[str, JSON]", pickle.loads(self._line.recv_bytes()))
        except (EOFError, OSError):
            return self._broken()
        value = reply.get("ok")
        if isinstance(value, dict):
            return value
        return SideFailed(side="twin", reason=str(reply.get("line")), log=str(reply.get("error")))

    def _broken(self) -> SideFailed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self.close()
        return self._lost("died", self._tail())

    def close(self) -> None:
        """Kill it and what it started (Inductor's compile workers), and reap it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        self._line.close()
        self._log.close()

    def _lost(self, reason: str, log: str) -> SideFailed:
        return SideFailed(side="twin", reason=reason, log=log or f"exit {self._process.returncode}")

    def _tail(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - LOG_CHARS))
        return plain(self._log.read().decode(errors="replace"))


def _words(request: Mapping[str, object]) -> str:
    """What a request is about."""
    return f"{request['do']} {request.get('shape_set')} {request.get('mode')}"


def _packed(request: Mapping[str, object]) -> bytes:
    """Classes of the user's own script travel by value: the twin's main module is another one."""
    import cloudpickle

    return cast(bytes, cloudpickle.dumps(dict(request)))
