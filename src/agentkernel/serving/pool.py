"""Pool of processes of this machine that judge what is queued."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from agentkernel.domain.errors import EnvironmentFailure, SettingError
from agentkernel.runtime.machine import CPU, hold_devices
from agentkernel.runtime.pool import assign_jobs
from agentkernel.runtime.timed_cpus import LANES
from agentkernel.runtime.worker import ONE_THREAD, Worker
from agentkernel.serving.submission import NOTHING, Answer, Work, WorkerAnswer
from agentkernel.serving.submission_queue import Claim, Queue

ENTRY = "agentkernel.serving.judge_worker:judge"
ANSWERS: TypeAdapter[WorkerAnswer] = TypeAdapter(WorkerAnswer)
ANSWER_S = 900.0
"""What one submission may take in all; it would hang again."""
MOST_IN_VAIN = 12
"""Processes that are begun one after the other and all lost. Somebody may be killing them."""
MOST_ON_CPU = 8
"""Workers without a GPU that nobody asked for: each has torch and a sandbox in memory."""
JudgeProcess = Worker[Work, WorkerAnswer]


class Pool(Protocol):
    """Who works on the queue."""

    @property
    def workers(self) -> int:
        """Submissions at a time."""
        ...

    def run(self) -> None:
        """Answer what is queued until the queue ends. Raises EnvironmentFailure where nothing can
        be judged, OutputError where nothing can be kept."""

    def stop(self) -> None:
        """End the queue and what is at work, from another thread."""


def devices_for(workers: int | None, gpus: Sequence[str], cpus: int) -> tuple[str, ...]:
    """The device of each worker: a GPU each, else the CPU. Raises SettingError."""
    if not gpus:
        return (CPU,) * (workers or min(cpus, MOST_ON_CPU))
    if workers is not None and workers > len(gpus):
        raise SettingError(
            f"--workers {workers} is more than the GPUs here, {len(gpus)}. Expected at most one a "
            "GPU: nothing else may run on a GPU that times. Next: leave --workers out."
        )
    return tuple(gpus[:workers])


class LocalPool:
    """A process for each entry of `devices`, which are held meanwhile: one task a GPU."""

    def __init__(self, queue: Queue, devices: Sequence[str], locks: Path) -> None:
        self._queue, self._devices, self._locks = queue, devices, locks
        self._processes = [self._process(device) for device in devices]
        self._in_vain = 0

    @property
    def workers(self) -> int:
        """Submissions at a time."""
        return len(self._devices)

    def _process(self, device: str) -> JudgeProcess:
        variables = {
            "CUDA_VISIBLE_DEVICES": "" if device == CPU else device,
            LANES: str(len(self._devices)),
        }
        return Worker(ENTRY, (device, str(self._locks)), ANSWERS, ONE_THREAD, variables)

    def run(self) -> None:
        """See Pool."""
        turns = count(1)
        with ExitStack() as held:
            held.enter_context(hold_devices(self._locks, self._devices))
            for process in self._processes:
                held.enter_context(process)
            for _ in assign_jobs(
                self._processes,
                lambda process, last: None if self._queue.ended else next(turns),
                lambda process, turn: self._take_turn(process),
            ):
                pass

    def stop(self) -> None:
        """See Pool."""
        self._queue.end()
        for process in self._processes:
            process.kill()

    def _take_turn(self, process: JudgeProcess) -> None:
        """Wait for a submission and see to its answer."""
        try:
            claim = self._queue.claim()
            if claim is not None:
                self._judge(process, claim)
        except BaseException:
            self._queue.end()  # the other workers wait for claims
            raise

    def _judge(self, process: JudgeProcess, claim: Claim) -> None:
        began = time.monotonic()
        answer = process.ask(claim.work, ANSWER_S)
        if isinstance(answer, WorkerAnswer):
            self._in_vain = 0
            keep(self._queue, claim, answer)
        elif self._queue.ended:  # it was called off, and waits for the next server
            return
        elif time.monotonic() - began >= ANSWER_S:
            self._queue.finish(claim, Answer(error=answer.reason))
        else:
            self._queue.lost(claim, answer.reason)
            self._renew(process, claim.work)

    def _renew(self, process: JudgeProcess, work: Work) -> None:
        """Another process in the place of one that was lost, which takes no submission before it
        answers. Raises EnvironmentFailure where none does, here or beside it: it is not the
        submission's fault then, and the others' would be the same."""
        while not self._queue.ended:
            process.close()
            answer = process.ask(work.evolve(candidate=NOTHING), ANSWER_S)
            if isinstance(answer, WorkerAnswer):
                self._in_vain = 0
                return
            self._in_vain += 1
            if self._in_vain >= MOST_IN_VAIN:
                raise EnvironmentFailure(
                    f"No worker answers any more: {answer.reason}. Expected a process that judges. "
                    "Next: see 'agentkernel doctor' and 'nvidia-smi', then give the same command: "
                    "it goes on."
                )


def keep(queue: Queue, claim: Claim, found: WorkerAnswer) -> None:
    """Keep a worker's answer. Raises EnvironmentFailure where it says that it cannot judge."""
    if found.unable:
        raise EnvironmentFailure(found.unable)
    queue.finish(claim, found.answer)
