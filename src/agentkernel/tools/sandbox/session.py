"""Sandboxed workers of the parent: started, kept ready, called within the time limit, closed."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, Protocol, Self, TypeVar, cast

from agentkernel.domain.errors import SandboxUnavailable, TimeIsUp
from agentkernel.tools.sandbox.isolation import (
    Isolation,
    Limits,
    Tier,
    find_isolation,
    weaken_isolation,
)
from agentkernel.tools.sandbox.process import SandboxProcess, convolutions_round
from agentkernel.tools.sandbox.protocol import (
    JSON,
    WorkerFailed,
    is_disk_full,
    outcome,
    pack_request,
    request_name,
)
from agentkernel.tools.sandbox.tensors import (
    Shared,
    TensorRef,
    share_exclusive,
    share_resident,
    share_room,
)

if TYPE_CHECKING:
    import torch


MOST_IDLE = 6
"""Four of a judgement on a GPU, the profile's, and one that interprets."""


class Closable(Protocol):
    """What a shelf holds."""

    @property
    def alive(self) -> bool: ...

    def close(self) -> None: ...


Item = TypeVar("Item", bound=Closable)


class IdleWorkers(Generic[Item]):
    """At most `MOST_IDLE` workers that nobody has used yet; each leaves it once, for good.

    What is left is closed when the interpreter ends. A process that dies otherwise takes its
    workers along: their life line closes.
    """

    def __init__(self) -> None:
        self._items: list[tuple[Hashable, Item]] = []
        self._lock = threading.Lock()
        self._owner = os.getpid()
        atexit.register(self.clear)

    def put(self, key: Hashable, item: Item) -> None:
        """Keep `item` for whoever asks for `key`; the oldest one makes room."""
        with self._lock:
            self._items.append((key, item))
            surplus = self._items[:-MOST_IDLE]
            del self._items[:-MOST_IDLE]
        for _, old in surplus:
            old.close()

    def take(self, key: Hashable) -> Item | None:
        """The item of that key that waited longest; None where there is none alive."""
        with self._lock:
            if self._owner != os.getpid():
                return None
            for place, (held, item) in enumerate(self._items):
                if held == key and item.alive:
                    del self._items[place]
                    return item
        return None

    def clear(self) -> None:
        """Close all that nobody took."""
        with self._lock:
            items, self._items = self._items, []
        if self._owner == os.getpid():
            for _, item in items:
                item.close()

    def count(self, key: Hashable) -> int:
        """How many of that key are alive."""
        with self._lock:
            return sum(held == key and item.alive for held, item in self._items)

    def __iter__(self) -> Iterator[Item]:
        with self._lock:
            return iter([item for _, item in self._items])


OVER = "the time limit was over"
SEARCH_SHARE = 1 / 3
"""Of what is left a search of schedules takes so much: what it finds has still to be judged."""

_left_s: ContextVar[Callable[[], float]] = ContextVar("left_s", default=lambda: math.inf)


@contextmanager
def limited_time(left_s: Callable[[], float]) -> Iterator[None]:
    """While this lasts, `time_left` is what `left_s` says, in seconds."""
    token = _left_s.set(left_s)
    try:
        yield
    finally:
        _left_s.reset(token)


def time_left() -> float:
    """Seconds until the time limit of the run in force; inf where there is none."""
    return _left_s.get()()


def require_time() -> None:
    """Raise TimeIsUp where the time limit is over."""
    if time_left() <= 0.0:
        raise TimeIsUp(OVER)


def search_seconds(most: float) -> float:
    """How long a search may take that would take `most` seconds."""
    return min(most, SEARCH_SHARE * max(time_left(), 0.0))


class Worker:
    """One sandboxed process. Use `open_worker`, as a context manager; not thread-safe.

    It starts in the background: `await_ready` comes before the first call.
    """

    def __init__(
        self,
        isolation: Isolation,
        device: Literal["cpu", "cuda"],
        interpret: bool,
        limits: Limits,
        frontend: bool = False,
    ) -> None:
        self.device = device
        self.interpret = interpret
        self._isolation = isolation
        self._locks: Mapping[str, JSON] = {}
        self._limits = limits
        self._shared: dict[int, Shared] = {}
        self._unsent: list[Shared] = []
        self._dropped: list[Shared] = []
        self._ready = False
        self._process = SandboxProcess(isolation, device, interpret, limits, frontend)

    @property
    def tier(self) -> str:
        """The walls by name, with what they lack: "bubblewrap", "namespaces, no landlock"."""
        name: Tier = self._isolation.tier
        if name == "none":
            return name
        parts: list[str] = [name]
        parts += [f"no {lock}" for lock in ("landlock", "seccomp") if not self._locks.get(lock)]
        if self._locks.get("landlock") and self._locks.get("late"):
            parts.append("landlock late")
        return ", ".join(parts)

    @property
    def locks(self) -> Mapping[str, JSON]:
        """What the worker locked behind itself, as it said before it knew a candidate."""
        return self._locks

    @property
    def pid(self) -> int | None:
        """The worker's number in its own PID namespace; None before it has started."""
        return self._process.pid

    def outer_pids(self) -> list[int]:
        """The launcher's and the worker's numbers here, as far as they can be seen."""
        return self._process.outer_pids()

    @property
    def scratch(self) -> Path:
        """The worker's one writable folder, by its name in both processes; where the tier has
        namespaces its content is seen only inside."""
        return self._process.scratch

    @property
    def log(self) -> str:
        """The tail of what the worker printed."""
        return self._process.log

    @property
    def alive(self) -> bool:
        """False once an op ended it, or it went away."""
        return self._process.alive

    def share(self, tensor: torch.Tensor) -> TensorRef:
        """Let the worker see a copy of `tensor`; see `shared` for the parent's side of it."""
        return self._keep(share_exclusive(tensor))

    def share_room(self, shape: Sequence[int], dtype: torch.dtype, device: str) -> TensorRef:
        """Let the worker see a tensor that `shared` gives and that nothing was copied to yet."""
        return self._keep(share_room(shape, dtype, device))

    def _keep(self, shared: Shared) -> TensorRef:
        self._shared[shared.ref.number] = shared
        self._unsent.append(shared)
        return shared.ref

    def share_resident(self, tensor: torch.Tensor) -> TensorRef:
        """Let the worker see `tensor` itself where its allocation holds nothing else, else a copy:
        for what is too large to exist twice. `shared` gives the parent's side of it."""
        shared = share_resident(tensor)
        self._shared[shared.ref.number] = shared
        self._unsent.append(shared)
        return shared.ref

    def shared(self, ref: TensorRef) -> torch.Tensor:
        """The parent's tensor over the same memory: what the worker writes shows here."""
        return self._shared[ref.number].tensor

    def release(self, refs: Sequence[TensorRef]) -> None:
        """Forget shared tensors; the worker unmaps them with its next request, and the memory is
        kept until then."""
        for ref in refs:
            shared = self._shared.pop(ref.number, None)
            if shared is None:
                continue
            if shared in self._unsent:
                self._unsent.remove(shared)
                shared.close()
            else:
                self._dropped.append(shared)

    def call(
        self, op: str, payload: Mapping[str, object], timeout_s: float
    ) -> dict[str, JSON] | WorkerFailed:
        """Run `op` ("agentkernel.tools.x:function"); past `timeout_s` the worker is killed.

        Raises TimeIsUp where the time limit of the run in force ends before, which kills it too.
        """
        require_time()
        if self._process.death is not None:
            return self._process.death
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()
        staged = [item for item in self._shared.values() if item.host is not None]
        for item in staged:
            item.push()
        limit_s = min(timeout_s, time_left())
        reply = self._exchange(op, payload, limit_s)
        if limit_s < timeout_s and isinstance(reply, WorkerFailed) and reply.cause == "timeout":
            raise TimeIsUp(OVER)
        for item in staged:
            item.pull()
        return reply

    def close(self) -> None:
        """Kill what is left, reap it, remove the scratch."""
        self._process.close()
        for item in self._shared.values():
            item.close()
        self._shared.clear()
        self._dropped.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def await_ready(self) -> None:
        """Until it has imported what it needs. Raises SandboxUnavailable where it does not."""
        if self._ready:
            return
        self._ready = True
        reply = self._process.await_ready()
        if isinstance(reply, WorkerFailed):
            self.close()
            tail = " ".join(reply.log.split())[-400:]
            raise SandboxUnavailable(
                f"The sandboxed worker ({self._isolation.tier}) did not start: {reply.reason}: "
                f"{tail}. "
                "Expected it to import torch, triton and agentkernel. Next: agentkernel doctor."
            )
        self._locks = cast("Mapping[str, JSON]", reply["locks"])

    def _exchange(
        self, op: str, payload: Mapping[str, object], timeout_s: float
    ) -> dict[str, JSON] | WorkerFailed:
        new, self._unsent = self._unsent, []
        dropped, self._dropped = self._dropped, []
        name = request_name()
        body = pack_request(
            {
                "id": name,
                "op": op,
                "payload": payload,
                "share": [item.ref for item in new],
                "drop": [item.ref.number for item in dropped],
            }
        )
        if new or dropped:
            shared = [*self._shared.values(), *dropped]
            self._process.allow(sum(item.ref.nbytes for item in shared if item.ref.span is None))
        try:
            fds = [item.fd for item in new if item.fd is not None]
            reply = self._process.exchange(name, body, fds, timeout_s)
        finally:
            for item in new:
                item.close()
        found = reply if isinstance(reply, WorkerFailed) else outcome(reply)
        if isinstance(found, WorkerFailed) and found.cause == "raised" and is_disk_full(found):
            return self._process.end("disk", "no space left in the scratch")
        return found


def open_worker(
    *,
    device: Literal["cpu", "cuda"],
    interpret: bool,
    frontend: bool = False,
    limits: Limits | None = None,
    allow_unsandboxed: bool = False,
    tier: Tier | None = None,
) -> Worker:
    """A worker behind the strongest walls that this machine has (or `tier` alone): one that
    `prefork_worker` started for the same wishes, else a new one. With `frontend` it starts in half
    the time, with no more imported than Triton's front end takes.

    Raises SandboxUnavailable where there are none, unless `allow_unsandboxed`.
    """
    wish = _WorkerRequest(device, interpret, limits or Limits(), allow_unsandboxed, tier, frontend)
    spare = _shelf.take(wish)
    if spare is not None:
        with contextlib.suppress(SandboxUnavailable):
            spare.await_ready()
            return spare
    while True:
        isolation = wish.isolation()
        try:
            worker = wish.start(isolation)
            worker.await_ready()
        except SandboxUnavailable:
            # CUDA may not start in a fork, or behind Landlock: once more without, from now on.
            if device != "cuda" or not weaken_isolation():
                raise
        else:
            return worker


def prefork_worker(
    *,
    device: Literal["cpu", "cuda"],
    interpret: bool,
    limits: Limits | None = None,
    allow_unsandboxed: bool = False,
    count: int = 1,
) -> None:
    """Start workers in the background until `count` idle ones wait for `open_worker` with the same
    wishes. Does nothing where no walls can be built: `open_worker` then says why."""
    wish = _WorkerRequest(device, interpret, limits or Limits(), allow_unsandboxed, None)
    with contextlib.suppress(SandboxUnavailable):
        while _shelf.count(wish) < count:
            _shelf.put(wish, wish.start(wish.isolation()))


def settle_idle_workers() -> None:
    """Until the expected workers have started, so that nothing stirs while something is timed."""
    for worker in _shelf:
        with contextlib.suppress(SandboxUnavailable):
            worker.await_ready()


def close_idle_workers() -> None:
    """End the workers that were expected and never used."""
    _shelf.clear()


@dataclass(frozen=True)
class _WorkerRequest:
    """What `open_worker` was asked for, with the GPUs that a worker would see."""

    device: Literal["cpu", "cuda"]
    interpret: bool
    limits: Limits
    allow_unsandboxed: bool
    tier: Tier | None
    frontend: bool = False
    gpus: str = field(default_factory=lambda: os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    convolutions_round: bool = field(default_factory=convolutions_round)

    def isolation(self) -> Isolation:
        """Raises SandboxUnavailable where there are none."""
        return find_isolation(
            cuda=self.device == "cuda",
            wanted=self.tier,
            allow_unsandboxed=self.allow_unsandboxed,
        )

    def start(self, isolation: Isolation) -> Worker:
        return Worker(isolation, self.device, self.interpret, self.limits, self.frontend)


_shelf: IdleWorkers[Worker] = IdleWorkers()
