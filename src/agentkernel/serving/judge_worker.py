"""Worker process that judges and times what clients submit.

The problem is code of whoever holds the token, and runs here; the candidate runs in the sandbox.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from functools import cache, lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch

from agentkernel.domain.base import sha256_text
from agentkernel.domain.errors import AgentKernelError, DiskFailure, EnvironmentFailure, one_line
from agentkernel.runtime.machine import join_devices
from agentkernel.runtime.worker import serve
from agentkernel.serving.submission import NOTHING, Answer, Work, WorkerAnswer
from agentkernel.storage.files import FULL, write_atomic
from agentkernel.tools.judge.judge import judge as run_judge
from agentkernel.tools.problem.capture import Captured, capture
from agentkernel.tools.problem.loading import LoadedProblem, load_problem
from agentkernel.tools.profiler import profile
from agentkernel.tools.targets import find_target
from agentkernel.workflows.run_factory import judge_settings, profile_settings

NO_ROOM = (
    "No room left on the disk of a worker: {}. Expected room for what it judges. Next: make room, "
    "then give the same command: it goes on."
)
MOST_PROBLEMS = 8
"""Problems that stay loaded: the candidates of a group come one after the other."""


class CapturedProblem(NamedTuple):
    """A problem that is ready to be judged against."""

    loaded: LoadedProblem
    captured: Captured


class WorkerJudge:
    """Judges candidates for several problems, whose files are written to `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._captured = lru_cache(MOST_PROBLEMS)(self._capture)

    def answer(self, work: Work) -> WorkerAnswer:
        """The verdict, or why there is none. What nobody foresaw is raised: the process may have
        lost its GPU, and another one tries again."""
        if work.candidate == NOTHING:
            require_gpu()
            return WorkerAnswer()
        try:
            return WorkerAnswer(answer=self._judged(work))
        except (EnvironmentFailure, DiskFailure) as error:
            return WorkerAnswer(unable=one_line(error))
        except AgentKernelError as error:
            return WorkerAnswer(answer=Answer(error=one_line(error)))
        except OSError as error:
            if error.errno not in FULL:
                raise
            return WorkerAnswer(unable=NO_ROOM.format(one_line(error)))

    def _judged(self, work: Work) -> Answer:
        resolved = find_target(work.settings.target)
        loaded, captured = self._captured(work.name, work.problem)
        settings = judge_settings(work.settings, resolved)
        verdict = run_judge(loaded, captured, work.candidate, settings)
        if not work.profile or not verdict.accepted:
            return Answer(verdict=verdict)
        if not resolved.measurable:
            name = resolved.target.name
            return Answer(verdict=verdict, not_profiled=f"no GPU here can stand for {name}")
        timing = profile_settings(work.settings)
        found = profile(loaded, captured, work.candidate, resolved, timing)
        return Answer(verdict=verdict, profile=found)

    def _capture(self, name: str, text: str) -> CapturedProblem:
        folder = self._folder / sha256_text(text)[:16]
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.py"
        write_atomic(path, text)
        loaded = load_problem(str(path))
        return CapturedProblem(loaded, capture(loaded))


def require_gpu() -> None:
    """Use the GPU that this process was given; raises what CUDA raises where that is lost."""
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        torch.ones(8, device="cuda").sum().item()


def judge(line: Connection, device: str, locks: str) -> None:
    """Serve the findings of a process that works on `device`."""
    with (
        tempfile.TemporaryDirectory(prefix="agentkernel-served-") as folder,
        join_devices(Path(locks), device),
    ):
        serve(line, Work, WorkerJudge(Path(folder)).answer)


def judge_task(request: str) -> str:
    """On a worker of a Ray cluster: one submission's answer; both are JSON."""
    warnings.simplefilter("ignore")
    return _kept().answer(Work.model_validate_json(request)).model_dump_json()


@cache
def _kept() -> WorkerJudge:
    """Ray keeps a worker for the next task: what it has loaded stays."""
    return WorkerJudge(Path(tempfile.mkdtemp(prefix="agentkernel-served-")))
