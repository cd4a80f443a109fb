"""Which sandboxed worker does a judgement under given settings get?"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from agentkernel.runtime import gate
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.sandbox.limits import Limits
from agentkernel.tools.sandbox.session import Worker, open_worker, prefork_worker


def open_judge_worker(settings: JudgeSettings) -> Worker:
    """A worker on the settings' device; on the CPU it interprets. Raises SandboxUnavailable."""
    return open_worker(
        device=settings.device,
        interpret=settings.device == "cpu",
        limits=Limits(memory_bytes=settings.memory_bytes),
        allow_unsandboxed=settings.allow_unsandboxed,
    )


def prefork_judge_workers(settings: JudgeSettings, count: int = 1) -> None:
    """Start `count` of them in the background, so that nobody waits."""
    prefork_worker(
        device=settings.device,
        interpret=settings.device == "cpu",
        limits=Limits(memory_bytes=settings.memory_bytes),
        allow_unsandboxed=settings.allow_unsandboxed,
        count=count,
    )


def on_device(settings: JudgeSettings) -> AbstractContextManager[None]:
    """Around what uses the GPU: nobody times meanwhile."""
    return gate.shared() if settings.device == "cuda" else nullcontext()
