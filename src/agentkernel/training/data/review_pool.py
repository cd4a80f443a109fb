"""How are several questions put at once, by a caller who takes the answers one by one?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from agentkernel.domain.errors import ModelUnavailable
from agentkernel.domain.exchange import Reply
from agentkernel.training.training import JudgedKernel


def concurrent_answers(
    rows: Iterator[JudgedKernel], ask: Callable[[JudgedKernel], Reply], jobs: int
) -> Iterator[tuple[JudgedKernel, Reply | ModelUnavailable]]:
    """Each row with its answer as it comes, `jobs` asked at a time; rows are taken from the
    caller's thread, one for every answer. Whatever else `ask` raises is raised."""
    asked: SimpleQueue[JudgedKernel | None] = SimpleQueue()
    told: SimpleQueue[tuple[JudgedKernel, Reply | BaseException]] = SimpleQueue()

    def work() -> None:
        while (row := asked.get()) is not None:
            try:
                told.put((row, ask(row)))
            except BaseException as error:  # noqa: BLE001 - raised again where rows come from
                told.put((row, error))

    for _ in range(jobs):
        # Nobody who interrupts waits for an answer.
        threading.Thread(target=work, daemon=True, name="teacher").start()
    under_way = 0
    try:
        while True:
            while under_way < jobs and (row := next(rows, None)) is not None:
                asked.put(row)
                under_way += 1
            if not under_way:
                return
            row, said = told.get()
            under_way -= 1
            if isinstance(said, BaseException) and not isinstance(said, ModelUnavailable):
                raise said
            yield row, said
    finally:
        for _ in range(jobs):
            asked.put(None)


__all__ = ["concurrent_answers"]
