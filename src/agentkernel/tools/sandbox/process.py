"""What does the parent hold of a sandboxed process? Its line, what it prints, the launcher's word
on its end, and the means to end it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Literal, cast, get_args

from agentkernel.domain.errors import SandboxUnavailable
from agentkernel.domain.plain_text import plain
from agentkernel.tools.sandbox.census import descendants
from agentkernel.tools.sandbox.environment import worker_environment
from agentkernel.tools.sandbox.failures import Cause, WorkerFailed, ended, exit_note
from agentkernel.tools.sandbox.fork_server import Forked, ForkServerGone, fork_worker
from agentkernel.tools.sandbox.limits import Limits
from agentkernel.tools.sandbox.protocol import (
    JSON,
    READY,
    ProtocolError,
    ReplyReader,
    send_request,
)
from agentkernel.tools.sandbox.tiers import Isolation, base_config, command
from agentkernel.tools.sandbox.waiting import readable
from agentkernel.tools.sandbox.warden import ALLOWANCE

POLL_S = 0.05
LAST_WORD_S = 1.0
END_S = 1.0


class SandboxProcess:
    """The launcher, the worker behind it, and the folder that both leave behind."""

    def __init__(
        self,
        isolation: Isolation,
        device: Literal["cpu", "cuda"],
        interpret: bool,
        limits: Limits,
        frontend: bool = False,
    ) -> None:
        self._limits = limits
        self._log = bytearray()
        self._printed = 0
        self.pid: int | None = None
        self._group: int | None = None
        self._isolation = isolation
        self.death: WorkerFailed | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="agentkernel-")).resolve()
        self._socket, theirs = socket.socketpair()
        life, self._life = os.pipe()
        self._output, output = os.pipe()
        self._status, status = os.pipe()
        ends = {"socket_fd": theirs.fileno(), "life_fd": life, "status_fd": status}
        config = base_config(isolation, self._folder, device == "cuda", limits)
        config |= {"device": device, "interpret": interpret, "frontend": frontend}
        environment = worker_environment(self.scratch, device, interpret, limits.threads)
        self._process: subprocess.Popen[bytes] | Forked
        try:
            if isolation.forked:
                passed = [*ends.values(), output]
                self._process = fork_worker(
                    isolation, device, interpret, config, environment, passed
                )
            else:
                self._process = subprocess.Popen(
                    command(isolation, config | ends),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=tuple(ends.values()),
                    start_new_session=True,
                )
        except ForkServerGone as gone:
            self._drop()
            raise SandboxUnavailable(
                f"No process to fork workers from ({isolation.tier}) could be started: {gone}. "
                "Expected it to import torch, triton and agentkernel. Next: agentkernel doctor."
            ) from gone
        finally:
            for fd in (life, status, output):
                os.close(fd)
            theirs.close()
        for fd in (self._life, self._output, self._status):
            os.set_blocking(fd, False)

    @property
    def scratch(self) -> Path:
        """The worker's one writable folder, by its name in both processes; where the tier has
        namespaces its content is seen only inside."""
        return self._folder / "scratch"

    @property
    def log(self) -> str:
        """The tail of what was printed."""
        return plain(self._log.decode(errors="replace"))

    @property
    def alive(self) -> bool:
        """False once it was ended, or went away."""
        return self.death is None and self._process.poll() is None

    def allow(self, shared_bytes: int) -> None:
        """Tell the launcher how much of the worker's memory is the parent's own."""
        with contextlib.suppress(OSError):
            os.write(self._life, ALLOWANCE.pack(shared_bytes))

    def await_ready(self) -> dict[str, JSON] | WorkerFailed:
        """What the worker says of itself once it has started and locked itself in."""
        reply = self.receive(READY, self._limits.start_timeout_s)
        if isinstance(reply, WorkerFailed):
            if isinstance(self._process, Forked):
                self._process.disown()
        else:
            self.pid = int(str(reply["pid"]))
            if self._isolation.tier in ("landlock", "none"):
                self._group = self.pid
        return reply

    def outer_pids(self) -> list[int]:
        """The launcher and what is below it, as this process numbers them."""
        pid = self._process.pid
        return [] if pid is None else [pid, *descendants(pid)]

    def exchange(
        self, name: str, body: bytes, fds: list[int], timeout_s: float
    ) -> dict[str, JSON] | WorkerFailed:
        """Send the request `name`; its reply. What came before the request was sent is no reply."""
        if self.death is not None:
            return self.death
        if readable([self._socket.fileno()], 0):
            with contextlib.suppress(OSError):
                if self._socket.recv(1, socket.MSG_PEEK):
                    return self.end("reply", "a reply that nobody asked for")
            return self._gone()
        try:
            send_request(self._socket, body, fds)
        except OSError:
            return self._gone()
        return self.receive(name, timeout_s)

    def receive(self, name: str, timeout_s: float) -> dict[str, JSON] | WorkerFailed:
        """The reply named `name`; past `timeout_s` the process is ended."""
        reader = ReplyReader(name, self._limits.reply_bytes)
        end = time.monotonic() + timeout_s if math.isfinite(timeout_s) else math.inf
        while True:
            if time.monotonic() >= end:
                return self.end("timeout", f"no answer within {timeout_s:g} s")
            fds = [self._socket.fileno(), self._output, self._status]
            ready = readable(fds, POLL_S)
            if self._output in ready and not self._drain():
                return self.end("output", f"more than {self._limits.output_bytes} bytes printed")
            if self._status in ready:
                return self._gone()
            if self._socket.fileno() in ready:
                try:
                    data = self._socket.recv(1 << 20)
                    if not data:
                        return self._gone()
                    reply = reader.feed(data)
                except ConnectionError:
                    return self._gone()
                except ProtocolError as error:
                    return self.end("reply", str(error))
                if reply is not None:
                    return reply

    def end(self, cause: Cause, note: str) -> WorkerFailed:
        """End all that is left, and remember why."""
        self._drain()
        self.kill()
        self.death = ended(cause, note, self.log)
        return self.death

    def kill(self) -> None:
        """End all that is left and reap it."""
        _close(self._life)
        self._life = -1
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        pid = self._process.pid
        if self._process.returncode is None:
            # The launcher does not hear: from outside, then, the first of a PID namespace too.
            for below in [] if pid is None else descendants(pid):
                _kill(below)
            self._process.kill()
        for group in (pid if isinstance(self._process, subprocess.Popen) else None, self._group):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if group is not None:
                    os.killpg(group, signal.SIGKILL)
        self._group = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._await_launcher()

    def close(self) -> None:
        """End all, and remove what they wrote."""
        self.kill()
        self._drop()

    def _drop(self) -> None:
        """Close what this side holds, and remove the folder."""
        self._socket.close()
        for fd in (self._life, self._output, self._status):
            _close(fd)
        self._life = self._output = self._status = -1
        shutil.rmtree(self._folder, ignore_errors=True)

    def _gone(self) -> WorkerFailed:
        """The worker went away: the launcher's word on it, or where it has none, that."""
        cause, note = self._last_word()
        return self.end(cause, note)

    def _last_word(self) -> tuple[Cause, str]:
        ready = readable([self._status], LAST_WORD_S)
        line = b""
        if ready:
            with contextlib.suppress(OSError):
                line = os.read(self._status, 4096)
        if line.endswith(b"\n"):
            said = json.loads(line.splitlines()[0])
            if said["cause"] in get_args(Cause):
                return cast(Cause, said["cause"]), str(said["note"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_WORD_S)
        note = exit_note(self._process.returncode)
        if isinstance(self._process, Forked) and self._process.words:
            note = f"{note}; its fork server said: {self._process.words}"
        return "launcher", note

    def _await_launcher(self) -> None:
        """Until the launcher's end of its pipe is closed: bubblewrap's own end comes before its."""
        end = time.monotonic() + END_S
        while time.monotonic() < end and self._status >= 0:
            ready = readable([self._status], POLL_S)
            with contextlib.suppress(BlockingIOError):
                if ready and not os.read(self._status, 4096):
                    return

    def _drain(self) -> bool:
        """Take in what was printed; False once it is too much."""
        if self._output < 0:
            return True
        try:
            data = os.read(self._output, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            time.sleep(POLL_S / 10)
        self._printed += len(data)
        self._log += data
        del self._log[: max(0, len(self._log) - self._limits.log_bytes)]
        return self._printed <= self._limits.output_bytes


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _close(fd: int) -> None:
    if fd >= 0:
        with contextlib.suppress(OSError):
            os.close(fd)
