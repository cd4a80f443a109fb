"""Which of the processes of a training is this one, and what do they tell one another?

One process a GPU, as `torchrun` or `train sft --gpus` starts them. The first one (rank 0) has the
folder to itself: the others wait for what it found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from agentkernel.domain.errors import AgentKernelError, RankLost
from agentkernel.training.launch import EXIT_INTERRUPTED, ends_with_its_launcher, is_launched

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

    @property
    def first(self) -> bool:
        """True in the one process that writes the folder."""
        return self.rank == 0

    def held(self, place: AbstractContextManager[None]) -> AbstractContextManager[None]:
        """`place` in the first one, once the others know that it holds it; nothing in the others.

        Where it cannot be held the others end without a word: SystemExit."""
        if self.count == 1:
            return place
        return _held(self, place)

    def given(self, work: Callable[[], T]) -> T:
        """What `work` gives in the first one, in all of them. What it raises is raised there; the
        others end without a word: SystemExit."""
        if self.count == 1:
            return work()
        if not self.first:
            received: T = _received()
            return received
        try:
            found = work()
        except Exception as error:
            _send(_Failed(error.exit_code if isinstance(error, AgentKernelError) else 1))
            raise
        _send(found)
        return found

    def after_first(self, work: Callable[[], T]) -> T:
        """What `work` gives here: the first one has done it before any other begins, so that a
        mistake is told once and what is written is there to be read."""
        if self.count == 1:
            return work()
        if self.first:
            found: list[T] = []
            self.given(lambda: found.append(work()))
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
class _Failed:
    exit_code: int


def _send(found: object) -> None:
    distributed.broadcast_object_list([found], src=0, device=torch.device("cpu"))


def _received() -> Any:
    box: list[Any] = [None]
    distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    if isinstance(box[0], _Failed):
        raise SystemExit(box[0].exit_code)
    return box[0]


@contextmanager
def _held(ranks: Ranks, place: AbstractContextManager[None]) -> Iterator[None]:
    ranks.given(place.__enter__)
    if not ranks.first:
        place = nullcontext()
    try:
        yield
    finally:
        place.__exit__(None, None, None)


def current_ranks() -> Ranks:
    """This process, as whoever started it says; alone where nobody does."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    return Ranks(int(os.environ.get("RANK", "0")), count) if count > 1 else Ranks()


def local_rank() -> int:
    """Which of this machine's GPUs is this process's."""
    return int(os.environ.get("LOCAL_RANK", "0")) if current_ranks().count > 1 else 0


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
        torch.cuda.set_device(local_rank())
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
        if is_launched():
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


__all__ = ["Ranks", "current_ranks", "local_rank", "process_group"]
