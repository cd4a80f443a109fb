"""Kernels that a candidate's first worker compiled on a GPU, for its next ones.

A judgement there takes up to five workers, and each compiled every kernel anew in every form:
0.2 to 2 s each, in the launch form's worker for all cases once more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from agentkernel.tools.judge.settings import JudgeSettings, open_judge_worker
from agentkernel.tools.sandbox.protocol import WorkerFailed
from agentkernel.tools.sandbox.session import Worker

Kernels = Sequence[Mapping[str, str]]
"""Entries of Triton's cache: `hash`, and by file name the content."""
OPS = "agentkernel.tools.judge.worker"
FILE_NAME = re.compile(r"[\w-][\w.-]{0,255}")
HASH = re.compile(r"[0-9a-f]{16,128}")


def kernels_of(worker: Worker, settings: JudgeSettings) -> Kernels:
    """What this worker compiled on a GPU; nothing where it does not say."""
    if settings.device == "cpu" or not worker.alive:
        return ()
    reply = worker.call(f"{OPS}:give_kernels", {}, settings.time_limit_s)
    given = None if isinstance(reply, WorkerFailed) else reply.get("kernels")
    return [item for item in given if is_entry(item)] if isinstance(given, list) else ()


def is_entry(item: object) -> TypeGuard[Mapping[str, str]]:
    """A worker is believed nothing: a hash, and plain names of files with text behind them."""
    if not isinstance(item, dict) or not HASH.fullmatch(str(item.get("hash"))):
        return False
    return all(FILE_NAME.fullmatch(str(name)) and isinstance(x, str) for name, x in item.items())


def open_knowing(settings: JudgeSettings, kernels: Kernels) -> Worker:
    """A judge's worker that finds `kernels` compiled. Raises SandboxUnavailable."""
    worker = open_judge_worker(settings)
    if not kernels:
        return worker
    try:
        reply = worker.call(f"{OPS}:take_kernels", {"kernels": kernels}, settings.time_limit_s)
    except BaseException:  # the time is up, or an interrupt: nobody else has it to close
        worker.close()
        raise
    if not isinstance(reply, WorkerFailed):
        return worker
    worker.close()
    return open_judge_worker(settings)
