"""How does the parent start a sandboxed worker, ask it for things, and get rid of it?"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from agentkernel.errors import SandboxUnavailable
from agentkernel.tools.sandbox.environment import worker_environment
from agentkernel.tools.sandbox.limits import Limits
from agentkernel.tools.sandbox.processes import private_bytes
from agentkernel.tools.sandbox.protocol import (
    JSON,
    ProtocolError,
    ReplyReader,
    pack_request,
    send_request,
)
from agentkernel.tools.sandbox.spares import Shelf
from agentkernel.tools.sandbox.tensors import Shared, TensorRef, share_tensor
from agentkernel.tools.sandbox.tiers import Tier, Walls, base_config, command, find_walls

if TYPE_CHECKING:
    import torch

POLL_S = 0.05
MEMORY_CHECK_S = 0.5
"""A fresh allocation is filled at a few GB/s: seldom enough to cost nothing, often enough."""
MEMORY_WORDS = ("MemoryError", "OutOfMemoryError", "can't allocate memory", "out of memory")


@dataclass(frozen=True)
class WorkerFailed:
    """An op that gave no value. After "raised" the worker lives on; after the others it is gone.

    `log` is the traceback, or the tail of what the worker printed; `error` the exception's type;
    `line` the candidate's line where known.
    """

    reason: Literal["raised", "died", "timeout", "memory"]
    log: str
    error: str = ""
    line: int | None = None


class Worker:
    """One sandboxed process. Use `open_worker`, as a context manager; not thread-safe.

    It starts in the background: `await_ready` comes before the first call.
    """

    def __init__(
        self,
        walls: Walls,
        device: Literal["cpu", "cuda"],
        interpret: bool,
        limits: Limits,
    ) -> None:
        self.tier: Tier = walls.tier
        self.device = device
        self.interpret = interpret
        self._limits = limits
        self._folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="agentkernel-")))
        self._log = bytearray()
        self._shared: dict[int, Shared] = {}
        self._unsent: list[Shared] = []
        self._dropped: list[int] = []
        self._death: WorkerFailed | None = None
        self._ready = False
        self._next_check_s = time.monotonic() + MEMORY_CHECK_S
        self._start(walls)

    @property
    def scratch(self) -> Path:
        """The worker's one writable folder; the same path in both processes."""
        return self._folder / "scratch"

    @property
    def log(self) -> str:
        """The tail of what the worker printed."""
        return self._log.decode(errors="replace")

    @property
    def alive(self) -> bool:
        """False once an op ended it, or it went away."""
        return self._death is None and self._process.poll() is None

    def share(self, tensor: torch.Tensor) -> TensorRef:
        """Let the worker see `tensor`; see `shared` for the parent's side of it."""
        shared = share_tensor(tensor)
        self._shared[shared.ref.number] = shared
        self._unsent.append(shared)
        return shared.ref

    def shared(self, ref: TensorRef) -> torch.Tensor:
        """The parent's tensor over the same memory: what the worker writes shows here."""
        return self._shared[ref.number].tensor

    def release(self, refs: Sequence[TensorRef]) -> None:
        """Forget shared tensors; the worker unmaps them with its next request."""
        for ref in refs:
            shared = self._shared.pop(ref.number, None)
            if shared in self._unsent:
                self._unsent.remove(shared)
                _close(shared.fd)
            elif shared is not None:
                self._dropped.append(ref.number)

    def call(
        self, op: str, payload: Mapping[str, object], timeout_s: float
    ) -> dict[str, JSON] | WorkerFailed:
        """Run `op` ("agentkernel.tools.x:function"); past `timeout_s` the worker is killed."""
        if self._death is not None:
            return self._death
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()
        staged = [item for item in self._shared.values() if item.host is not None]
        for item in staged:
            item.push()
        reply = self._exchange(op, payload, timeout_s)
        for item in staged:
            item.pull()
        return reply

    def close(self) -> None:
        """Kill what is left, reap it, remove the scratch."""
        self._kill()
        for item in self._shared.values():
            _close(item.fd)
            item.fd = None
        self._shared.clear()
        self._socket.close()
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, walls: Walls) -> None:
        ours, theirs = socket.socketpair()
        life_read, self._life = os.pipe()
        output, output_write = os.pipe()
        config = base_config(walls, self._folder, self.device == "cuda") | {
            "socket_fd": theirs.fileno(),
            "life_fd": life_read,
            "device": self.device,
            "interpret": self.interpret,
            "open_files": self._limits.open_files,
            "file_bytes": self._limits.file_bytes,
        }
        environment = worker_environment(
            self.scratch, self.device, self.interpret, self._limits.threads
        )
        self._process = subprocess.Popen(
            command(walls, config),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output_write,
            stderr=output_write,
            pass_fds=(theirs.fileno(), life_read),
            start_new_session=True,
        )
        for fd in (life_read, output_write):
            os.close(fd)
        theirs.close()
        self._socket = ours
        self._output = os.fdopen(output, "rb", buffering=0)
        os.set_blocking(output, False)

    def await_ready(self) -> None:
        """Until it has imported what it needs. Raises SandboxUnavailable where it does not."""
        if self._ready:
            return
        self._ready = True
        reply = self._receive(self._limits.start_timeout_s)
        if isinstance(reply, WorkerFailed):
            self.close()
            tail = " ".join(reply.log.split())[-400:]
            raise SandboxUnavailable(
                f"The sandboxed worker ({self.tier}) did not start: {reply.reason}: {tail}. "
                "Expected it to import torch, triton and agentkernel. Next: agentkernel doctor."
            )

    def _exchange(
        self, op: str, payload: Mapping[str, object], timeout_s: float
    ) -> dict[str, JSON] | WorkerFailed:
        new, self._unsent = self._unsent, []
        dropped, self._dropped = self._dropped, []
        body = pack_request(
            {"op": op, "payload": payload, "share": [item.ref for item in new], "drop": dropped}
        )
        try:
            send_request(self._socket, body, [item.fd for item in new if item.fd is not None])
        except OSError:
            return self._dead("died")
        finally:
            for item in new:
                _close(item.fd)
                item.fd = None
        reply = self._receive(timeout_s)
        return reply if isinstance(reply, WorkerFailed) else _outcome(reply)

    def _receive(self, timeout_s: float) -> dict[str, JSON] | WorkerFailed:
        reader = ReplyReader(self._limits.reply_bytes)
        end = time.monotonic() + timeout_s if math.isfinite(timeout_s) else math.inf
        while True:
            now = time.monotonic()
            if now >= end:
                return self._dead("timeout", f"no answer within {timeout_s:g} s")
            if now >= self._next_check_s:
                self._next_check_s = now + MEMORY_CHECK_S
                if private_bytes(self._process.pid) > self._limits.memory_bytes:
                    return self._dead("memory", f"over {self._limits.memory_bytes} bytes")
            line, output = self._socket.fileno(), self._output.fileno()
            ready, _, _ = select.select([line, output], [], [], POLL_S)
            if output in ready:
                self._drain()
            if line in ready:
                try:
                    data = self._socket.recv(1 << 20)
                    if not data:
                        return self._dead("died")
                    reply = reader.feed(data)
                except (ProtocolError, ConnectionError) as error:
                    return self._dead("died", str(error))
                if reply is not None:
                    return reply

    def _drain(self) -> None:
        try:
            data = os.read(self._output.fileno(), 1 << 16)
        except (BlockingIOError, ValueError):
            return
        if not data:
            time.sleep(POLL_S / 10)
        self._log += data
        del self._log[: max(0, len(self._log) - self._limits.log_bytes)]

    def _dead(self, reason: Literal["died", "timeout", "memory"], note: str = "") -> WorkerFailed:
        if reason == "died":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        self._drain()
        self._kill()
        note = note or _exit_note(self._process.returncode)
        if reason == "died" and self._process.returncode == 137 and "memory" in self.log:
            reason = "memory"
        self._death = WorkerFailed(reason, f"{note}\n{self.log}".strip())
        return self._death

    def _kill(self) -> None:
        _close(self._life)
        self._life = -1
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def open_worker(
    *,
    device: Literal["cpu", "cuda"],
    interpret: bool,
    limits: Limits | None = None,
    allow_unsandboxed: bool = False,
    tier: Tier | None = None,
) -> Worker:
    """A worker behind the strongest walls that this machine has (or `tier` alone): one that
    `expect_worker` started for the same wishes, else a new one.

    Raises SandboxUnavailable where there are none, unless `allow_unsandboxed`.
    """
    wish = _Wish(device, interpret, limits or Limits(), allow_unsandboxed, tier)
    worker = _shelf.take(wish) or wish.start()
    worker.await_ready()
    return worker


def expect_worker(
    *,
    device: Literal["cpu", "cuda"],
    interpret: bool,
    limits: Limits | None = None,
    allow_unsandboxed: bool = False,
    count: int = 1,
) -> None:
    """Start workers in the background until `count` idle ones wait for `open_worker` with the same
    wishes. Does nothing where no walls can be built: `open_worker` then says why."""
    wish = _Wish(device, interpret, limits or Limits(), allow_unsandboxed, None)
    with contextlib.suppress(SandboxUnavailable):
        while _shelf.count(wish) < count:
            _shelf.put(wish, wish.start())


def settle_spares() -> None:
    """Until the expected workers have started, so that nothing stirs while something is timed."""
    for worker in _shelf:
        with contextlib.suppress(SandboxUnavailable):
            worker.await_ready()


def close_spares() -> None:
    """End the workers that were expected and never used."""
    _shelf.clear()


@dataclass(frozen=True)
class _Wish:
    """What `open_worker` was asked for, with the GPUs that a worker would see."""

    device: Literal["cpu", "cuda"]
    interpret: bool
    limits: Limits
    allow_unsandboxed: bool
    tier: Tier | None
    gpus: str = field(default_factory=lambda: os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    def start(self) -> Worker:
        walls = find_walls(
            cuda=self.device == "cuda",
            wanted=self.tier,
            allow_unsandboxed=self.allow_unsandboxed,
        )
        return Worker(walls, self.device, self.interpret, self.limits)


_shelf: Shelf[Worker] = Shelf()


def _outcome(reply: dict[str, JSON]) -> dict[str, JSON] | WorkerFailed:
    value = reply.get("value")
    if reply.get("ok") is True and isinstance(value, dict):
        return value
    error, line = str(reply.get("error", "")), reply.get("line")
    log = str(reply.get("traceback", reply.get("message", "an answer without a value")))
    memory = any(word in f"{error} {reply.get('message', '')}" for word in MEMORY_WORDS)
    return WorkerFailed(
        "memory" if memory else "raised", log, error, line if isinstance(line, int) else None
    )


def _exit_note(code: int | None) -> str:
    if code is None or code == 0:
        return "the worker went away"
    number = -code if code < 0 else code - 128
    try:
        return f"the worker was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"the worker ended with exit code {code}"


def _close(fd: int | None) -> None:
    if fd is not None and fd >= 0:
        with contextlib.suppress(OSError):
            os.close(fd)
