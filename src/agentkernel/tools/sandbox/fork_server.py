"""From which process, with its imports behind it, are workers forked?

Importing torch takes two seconds of a core; a fork of a process that has done so takes a hundredth.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from agentkernel.tools.sandbox.census import descendants
from agentkernel.tools.sandbox.environment import PASSED_ON, worker_environment
from agentkernel.tools.sandbox.tiers import Isolation, import_paths, server_command
from agentkernel.tools.sandbox.waiting import readable

Device = Literal["cpu", "cuda"]
MADE_BY_IMPORT = {"TORCHINDUCTOR_CACHE_DIR": "/"}
"""torch._dynamo makes this folder as it is imported: it is one that is there, so that nothing is
made, and nobody can stand in the way of it. Workers have names of their own."""


class ForkServerGone(Exception):
    """The server ended; the text says what it printed."""


class Forked:
    """A process that a server forked, held as `subprocess.Popen` holds its own. The server reaps
    it, so that its exit code is nobody's to read."""

    def __init__(self, server: ForkServer, answer: socket.socket) -> None:
        self._server = server
        self._answer = answer
        self._held: tuple[int, int] | None = None
        self.returncode: int | None = None

    @property
    def pid(self) -> int | None:
        """Its number here, once the server has said it."""
        self.poll()
        return None if self._held is None else self._held[0]

    @property
    def words(self) -> str:
        """What its server printed."""
        return self._server.words

    def poll(self) -> int | None:
        """None while it runs or is about to, else 0."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Until it has ended, or there is none to come. Raises subprocess.TimeoutExpired."""
        if self.returncode is not None:
            return self.returncode
        end = time.monotonic() + timeout
        if self._answer.fileno() >= 0 and _ready(self._answer.fileno(), end):
            words, fds, _, _ = socket.recv_fds(self._answer, 64, 1)
            self._answer.close()
            if fds:
                os.set_inheritable(fds[0], False)
                self._held = int(words), fds[0]
        if self._answer.fileno() < 0 and (self._held is None or _ready(self._held[1], end)):
            self.returncode = 0
            if self._held is not None:
                os.close(self._held[1])
            return 0
        raise subprocess.TimeoutExpired("a forked worker", timeout)

    def kill(self) -> None:
        """End it at once. Where the server has not answered yet, what it will fork finds its life
        line closed."""
        if self.poll() is None:
            if self._held is None:
                self._answer.close()
                return
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._held[1], signal.SIGKILL)

    def disown(self) -> None:
        """End the server where it has not even answered: it is stopped, or hangs."""
        if self._held is None:
            self._server.end()


def _ready(fd: int, end: float) -> bool:
    return bool(readable([fd], max(0.0, end - time.monotonic())))


class ForkServer:
    """One process for each kind of worker and walls, started on first need. It runs one thread: of
    more, a fork would start some anew, and no process with several enters a user namespace."""

    def __init__(self, isolation: Isolation, device: Device, interpret: bool) -> None:
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        self._wrapped = isolation.tier == "bubblewrap"
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wish = {
            "line_fd": theirs.fileno(),
            "paths": import_paths(),
            "device": device,
            "interpret": interpret,
        }
        with theirs:
            self._process = subprocess.Popen(
                server_command(isolation, json.dumps(wish), cuda=device == "cuda"),
                env=worker_environment(Path("/tmp"), device, interpret, threads=1) | MADE_BY_IMPORT,
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd="/",
            )

    @property
    def alive(self) -> bool:
        """False once it has ended."""
        return self._process.poll() is None

    @property
    def words(self) -> str:
        """The tail of what it printed, until it is closed."""
        if self._printed.closed:
            return ""
        self._printed.seek(0)
        return " ".join(self._printed.read().decode(errors="replace").split())[-400:]

    def fork(
        self, config: Mapping[str, object], environment: Mapping[str, str], fds: Sequence[int]
    ) -> Forked:
        """A launcher with `config`; `fds` are its line, life line, status pipe and output.

        Raises ForkServerGone.
        """
        answer, theirs = socket.socketpair()
        words = json.dumps({"config": config, "environment": environment}).encode()
        with theirs:
            try:
                socket.send_fds(self._line, [words], [*fds, theirs.fileno()])
            except OSError as error:
                answer.close()
                raise ForkServerGone(self.words) from error
        return Forked(self, answer)

    def end(self) -> None:
        """End it; what it forked lives on."""
        self._line.close()
        if self._wrapped and self.alive:
            # Bubblewrap takes nothing along, and a stopped or importing server hears of nothing.
            for inside in descendants(self._process.pid)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(inside, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it and forget what it printed."""
        self.end()
        self._printed.close()


@dataclass(frozen=True)
class _Kind:
    """What workers of one server have in common."""

    owner: int
    isolation: Isolation
    device: Device
    interpret: bool
    variables: tuple[str | None, ...]
    paths: tuple[str, ...]


_servers: dict[_Kind, ForkServer] = {}
_lock = threading.Lock()


def fork_server(isolation: Isolation, device: Device, interpret: bool) -> ForkServer:
    """The server for such workers, started where there is none alive."""
    variables = tuple(os.environ.get(name) for name in PASSED_ON)
    kind = _Kind(os.getpid(), isolation, device, interpret, variables, tuple(import_paths()))
    with _lock:
        server = _servers.get(kind)
        if server is not None and not server.alive:
            server.close()
            server = None
        if server is None:
            server = _servers[kind] = ForkServer(isolation, device, interpret)
        return server


def fork_worker(
    isolation: Isolation,
    device: Device,
    interpret: bool,
    config: Mapping[str, object],
    environment: Mapping[str, str],
    fds: Sequence[int],
) -> Forked:
    """`ForkServer.fork` of the server for such workers; of a new one where that has just ended.

    Raises ForkServerGone where the new one ends too.
    """
    server = fork_server(isolation, device, interpret)
    try:
        return server.fork(config, environment, fds)
    except ForkServerGone:
        server.end()
    return fork_server(isolation, device, interpret).fork(config, environment, fds)


def close_servers() -> None:
    """End all servers of this process."""
    with _lock:
        own = [kind for kind in _servers if kind.owner == os.getpid()]
        for kind in own:
            _servers.pop(kind).close()


atexit.register(close_servers)
