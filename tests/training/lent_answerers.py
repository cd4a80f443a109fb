"""Which real processes write and judge for several tests, so that each imports torch once?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import pytest

from agentkernel.training import worker_pool
from agentkernel.training.data import knowledge_pairs
from agentkernel.training.worker_pool import PairWorker, WorkerAnswer, WorkerRequest, WorkKind


@dataclass
class Lent:
    """An Answerer of `Lender`: whoever closes it leaves the process to the next one."""

    answerer: PairWorker

    def ask(self, question: WorkerRequest, timeout_s: float) -> WorkerAnswer:
        return self.answerer.ask(question, timeout_s)

    def kill(self) -> None:
        """Nothing is at work once a run has ended by itself."""

    def close(self) -> None:
        """The lender does."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@dataclass
class Lender:
    """One Answerer for each work and its settings."""

    answerers: dict[tuple[WorkKind, str], PairWorker] = field(default_factory=dict)

    def lend(self, work: WorkKind, settings: str) -> Lent:
        return Lent(self.answerers.setdefault((work, settings), PairWorker(work, settings)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for answerer in self.answerers.values():
            answerer.close()


@pytest.fixture(scope="module")
def lender() -> Iterator[Lender]:
    """Its processes end with the file's tests."""
    with Lender() as lender:
        yield lender


@pytest.fixture
def lent(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> Lender:
    """`generate_pairs` asks the processes of `lender`."""
    monkeypatch.setattr(knowledge_pairs, "PairWorker", lender.lend)
    return lender


@pytest.fixture
def lent_judge(lender: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SubmissionJudge of one job asks the process of `lender`."""
    monkeypatch.setattr(worker_pool, "PairWorker", lender.lend)
