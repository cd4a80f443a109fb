"""The process of a worker as its parent holds it, and the fork servers that workers come from.

Importing torch takes two seconds of a core; a fork of a process that has imported it takes a
hundredth. The parent holds the worker's request line, its output, the launcher's report of its
end, and the means to end it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast, get_args

from agentkernel.domain.errors import SandboxUnavailable
from agentkernel.domain.plain_text import plain
from agentkernel.runtime import gpu_lock
from agentkernel.tools.sandbox.isolation import (
    PASSED_ON,
    Isolation,
    Limits,
    base_config,
    command,
    import_paths,
    server_command,
    worker_environment,
)
from agentkernel.tools.sandbox.protocol import (
    JSON,
    READY,
    Cause,
    ProtocolError,
    ReplyReader,
    WorkerFailed,
    ended,
    exit_note,
    send_request,
)
from agentkernel.tools.sandbox.watchdog import GO_ON, HALT, WORD, descendants, readable

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


POLL_S = 0.05
DRAIN_S = 0.1
"""What was launched before a process was stopped has left the GPU after so long."""
LAST_WORD_S = 1.0
END_S = 1.0


def convolutions_round() -> bool:
    """Whether this process lets cuDNN round fp32 convolutions to TF32: nobody has forbidden it
    where nobody has imported torch."""
    torch = sys.modules.get("torch")
    return torch is None or torch.backends.cudnn.conv.fp32_precision == "tf32"


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
        # The interpreter computes in fp32: what a flag lets a GPU round is not rounded there.
        config["convolutions_round"] = convolutions_round() and not interpret
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
        self._tell(shared_bytes)

    def _tell(self, word: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self._life, WORD.pack(word))

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
        """The reply named `name`; past `timeout_s` the process is ended. Who waits to time on the
        GPU meanwhile does not wait for the reply: those seconds do not count."""
        reader = ReplyReader(name, self._limits.reply_bytes)
        end = time.monotonic() + timeout_s if math.isfinite(timeout_s) else math.inf
        while True:
            if gpu_lock.is_wanted():
                end += self._give_way()
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

    def _give_way(self) -> float:
        """Have the worker stand still while somebody times; the seconds that it stood. A call may
        take a minute, most of which compiles, and all who come later wait behind who times."""
        before = time.monotonic()
        self._tell(HALT)
        try:
            time.sleep(DRAIN_S)
            with gpu_lock.without_gpu():
                pass
        finally:
            self._tell(GO_ON)
        return time.monotonic() - before

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
