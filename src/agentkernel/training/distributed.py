"""One process per GPU: launching the ranks of a training, and what they tell one another.

`torchrun` starts ranks as well. Here a mistake is one line with its own exit code, and an
interrupted launcher waits until the checkpoint is written (torchrun kills after 30 seconds).
Rank 0 has the folder to itself; the others wait for what it found.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import distributed

from agentkernel.domain.errors import AgentKernelError, RankLost, SettingError

LAUNCHER = "AGENTKERNEL_LAUNCHER"
"""Holds the id of the process that a rank must not outlive."""
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent ends."""
LOOK_AGAIN_S = 0.1
GRACE_S = 20.0
"""For the others to end by themselves once one of them has: what they wait for never comes."""
FORWARDED = (signal.SIGINT, signal.SIGTERM)
EXIT_INTERRUPTED = 130


class _Failed(NamedTuple):
    rank: int
    code: int
    """The exit code; the signal's number, negative, of one that was killed."""


def gpus_of(asked: str) -> int:
    """How many processes `--gpus` means: a number, or "auto" for all GPUs that are here. Where
    there is no GPU at all they share the CPU. Raises SettingError."""
    here = torch.cuda.device_count()
    if asked == "auto":
        return max(here, 1)
    if not asked.isdigit() or int(asked) < 1:
        raise SettingError(f"--gpus {asked!r} is no number of GPUs. Expected 1 or more, or 'auto'.")
    count = int(asked)
    if here and count > here:
        raise SettingError(
            f"--gpus {count} is more than the {here} that {'are' if here > 1 else 'is'} here. "
            f"Expected at most {here}. Next: --gpus auto."
        )
    return count


def launch(command: Sequence[str], count: int) -> int:
    """Run `command` (its words) in `count` processes, each of which knows its rank, until all have
    ended; gives 0, or the exit code of the first that failed.

    SIGINT and SIGTERM are passed on to all, and waited for; after a second one for `GRACE_S`.
    Raises RankLost where one was killed: the others are ended then.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # The port is taken before anybody is told of it.
    store = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(minutes=5)
    )
    ranks = [
        subprocess.Popen(
            list(command),
            env={**os.environ, **_told(rank, count, store.port)},
            stdin=subprocess.DEVNULL,
            # A terminal's Ctrl-C reaches this process alone, which passes it on once.
            start_new_session=True,
        )
        for rank in range(count)
    ]
    try:
        with _passing_on(ranks) as signals:
            first = _first_failed(ranks, signals)
    finally:
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.wait()
    if first is None:
        return 0
    if first.code < 0 and not signals:
        raise RankLost(
            f"Process {first.rank} of the {count} of this training (the first is 0) was ended by "
            f"{_name(-first.code)}. Expected all of them to work until the end. Next: the same "
            "command goes on from the last checkpoint."
        )
    return first.code if first.code > 0 else EXIT_INTERRUPTED


def command_of(words: Sequence[str]) -> list[str]:
    """This program with other words behind it."""
    return [sys.executable, "-m", "agentkernel", *words]


def _told(rank: int, count: int, port: int) -> Mapping[str, str]:
    """What torchrun tells its processes, too."""
    threads = max((os.cpu_count() or 1) // count, 1)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # The store is this process's: none of them opens one.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        # What C++ code warns of on the way out is nothing that the user could fix.
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        LAUNCHER: str(os.getpid()),
    }


def _first_failed(
    ranks: Sequence[subprocess.Popen[bytes]], signals: Sequence[int]
) -> _Failed | None:
    """Which of them failed before any other, once all have ended or need not be waited for; None
    where all is done."""
    first: _Failed | None = None
    end = math.inf
    while (working := None in [rank.poll() for rank in ranks]) and time.monotonic() < end:
        first = first or _failed(ranks)
        if first is not None and first.code < 0:
            break
        if first is not None or len(signals) > 1:
            end = min(end, time.monotonic() + GRACE_S)
        time.sleep(LOOK_AGAIN_S)
    return first or _failed(ranks) or (_Failed(0, -signal.SIGKILL) if working else None)


def _failed(ranks: Sequence[subprocess.Popen[bytes]]) -> _Failed | None:
    """A killed one before one with words of its own to say."""
    found = [_Failed(rank, item.returncode) for rank, item in enumerate(ranks) if item.returncode]
    return min(found, key=lambda item: item.code > 0, default=None)


@contextmanager
def _passing_on(ranks: Sequence[subprocess.Popen[bytes]]) -> Iterator[Sequence[int]]:
    """Gives the signals that came."""
    signals: list[int] = []

    def tell(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        for rank in ranks:
            rank.send_signal(number)

    before = {number: signal.signal(number, tell) for number in FORWARDED}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ends_with_its_launcher() -> None:
    """Let the system kill this process when the one that launched it is no more."""
    launcher = os.environ.get(LAUNCHER)
    if launcher is None:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(launcher):
        raise RankLost(
            f"The process {launcher} that began this training is gone. Expected it to wait. Next: "
            "the same command goes on."
        )


T = TypeVar("T")
WAIT = timedelta(days=1)
"""For the first one, which judges held-out modules for as long as they take. That one is gone is
seen sooner: whoever started them ends the others."""
GONE = (
    "connection closed by peer",
    "connection reset by peer",
    "connection was reset",
    "broken pipe",
)
"""What gloo says of a process that is no more; NCCL has exceptions of its own for it."""


@dataclass(frozen=True)
class Ranks:
    """This process among all that train together."""

    rank: int = 0
    count: int = 1
    sharded: bool = False
    """Each holds a part of the weights."""

    @property
    def first(self) -> bool:
        """True in the one process that writes the folder."""
        return self.rank == 0

    @contextmanager
    def held(self, place: AbstractContextManager[None]) -> Iterator[None]:
        """`place` in the first one, once the others know that it holds it; nothing in the others.

        Where it cannot be held the others end without a word: SystemExit."""
        self.given(place.__enter__)
        try:
            yield
        finally:
            if self.first:
                place.__exit__(None, None, None)

    def given(self, work: Callable[[], T]) -> T:
        """What `work` gives in the first one, in all of them. What it raises is raised there; the
        others end without a word: SystemExit."""
        if self.count == 1:
            return work()
        if not self.first:
            found: T | _RankFailed = _broadcast(None)
            if isinstance(found, _RankFailed):
                raise SystemExit(found.exit_code)
            return found
        try:
            done = work()
        except Exception as error:
            code = error.exit_code if isinstance(error, AgentKernelError) else 1
            _broadcast(_RankFailed(code))
            raise
        _broadcast(done)
        return done

    def after_first(self, work: Callable[[], T]) -> T:
        """What `work` gives here: the first one has done it before any other begins, so that a
        mistake is told once and what is written is there to be read."""
        if self.count == 1:
            return work()
        if self.first:
            found: list[T] = []
            self.given(lambda: found.append(work()))  # what it gives need not be sent
            return found[0]
        self.given(lambda: None)
        return work()

    def most(self, number: int) -> int:
        """The largest `number` that any of them has."""
        if self.count == 1:
            return number
        # On the CPU: it takes some 0.1 ms and does not wait for what the GPU has in hand.
        box = torch.tensor(number)
        distributed.all_reduce(box, op=distributed.ReduceOp.MAX)
        return int(box)

    def wait(self) -> None:
        """Until all of them are here."""
        self.most(0)


@dataclass(frozen=True)
class _RankFailed:
    exit_code: int


def _broadcast(found: object) -> Any:
    """What the first one found, in all of them."""
    box = [found]
    distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


def current_ranks() -> Ranks:
    """This process, as whoever started it says; alone where nobody does."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    return Ranks(int(os.environ.get("RANK", "0")), count) if count > 1 else Ranks()


@contextmanager
def process_group() -> Iterator[Ranks]:
    """Among the others that train together, until all of them have left; where a process group is
    there already, by that one. Raises RankLost where one of them is gone."""
    ranks = current_ranks()
    if ranks.count == 1:
        yield ranks
        return
    ends_with_its_launcher()
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    begins = not distributed.is_initialized()
    if begins:
        # Words go over the CPU, weights over the GPUs.
        distributed.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=WAIT)
    try:
        yield ranks
        ranks.wait()
    except KeyboardInterrupt:
        if ranks.first:
            raise
        raise SystemExit(EXIT_INTERRUPTED) from None
    except RuntimeError as error:
        if not _is_gone(error):
            raise
        if LAUNCHER in os.environ:
            # Who launched them says which one, and of what.
            raise SystemExit(RankLost.exit_code) from error
        raise RankLost(
            f"Another of the {ranks.count} processes of this training is gone: its own words stand "
            "above, or somebody killed it. Expected all of them to work until the end. Next: the "
            "same command goes on from the last checkpoint."
        ) from error
    if begins:
        distributed.destroy_process_group()


def _is_gone(error: Exception) -> bool:
    if isinstance(error, distributed.DistBackendError | distributed.DistNetworkError):
        return True
    return any(words in str(error).lower() for words in GONE)
