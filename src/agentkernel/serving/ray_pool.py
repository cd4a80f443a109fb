"""Pool of tasks on a Ray cluster that judge what is queued."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agentkernel.domain.errors import EnvironmentFailure, one_line
from agentkernel.runtime.ray import LOST, RayCluster, RayTask, TaskEnded
from agentkernel.serving.judge_worker import judge_task
from agentkernel.serving.pool import ANSWER_S, keep
from agentkernel.serving.submission import Answer, WorkerAnswer
from agentkernel.serving.submission_queue import Claim, Queue

POLL_S = 0.1


class RayPool:
    """Tasks of the cluster at `address` ("auto", "ray://host:port"), or of one that is started here
    ("local"): a GPU each where it has some, else a CPU; `most` at a time.

    Raises MissingDependency without the package or the cluster.
    """

    def __init__(self, queue: Queue, address: str, most: int | None = None) -> None:
        self._queue = queue
        self._cluster = RayCluster(address, "server", "this package")
        gpus, cpus = (int(self._cluster.resources.get(name, 0)) for name in ("GPU", "CPU"))
        self._options: dict[str, Any] = {"num_cpus": 1, "num_gpus": 1 if gpus else 0}
        self.workers = min(most or gpus or cpus or 1, gpus or cpus or 1)

    def run(self) -> None:
        """See Pool. Raises MissingDependency where the cluster is gone, or a node lacks
        something."""
        running: dict[str, Claim] = {}
        tries: Counter[str] = Counter()
        try:
            while not self._queue.ended:
                claim = self._queue.claim(wait=False) if len(running) < self.workers else None
                if claim is not None:
                    tries[claim.id] += 1
                    key = f"{claim.id}-{tries[claim.id]}"
                    running[key] = claim
                    self._begin(key, claim)
                elif self._cluster.answered(POLL_S):
                    ended = self._cluster.ended()
                    self._settle(running.pop(ended.key), ended)
        finally:
            self._queue.end()
            self._cluster.close()

    def stop(self) -> None:
        """See Pool."""
        self._queue.end()

    def _begin(self, key: str, claim: Claim) -> None:
        text = claim.work.model_dump_json()
        self._cluster.begin(RayTask(key, "judge", judge_task, text, self._options, ANSWER_S))

    def _settle(self, claim: Claim, ended: TaskEnded) -> None:
        if ended.answer is not None:
            keep(self._queue, claim, WorkerAnswer.model_validate_json(ended.answer))
        elif isinstance(ended.error, EnvironmentFailure):
            raise ended.error
        elif ended.hung:
            self._queue.finish(claim, Answer(error=f"no answer within {ANSWER_S:g} s"))
        else:
            why = f"{LOST} ({ended.lost})" if ended.error is None else one_line(ended.error)
            self._queue.lost(claim, why)
