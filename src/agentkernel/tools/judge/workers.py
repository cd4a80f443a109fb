"""Which sandboxed worker does a judgement under given settings get?"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from agentkernel.runtime import gate
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.sandbox.limits import Limits
from agentkernel.tools.sandbox.session import Worker, expect_worker, open_worker


def open_judged(settings: JudgeSettings) -> Worker:
    """A worker on the settings' device; on the CPU it interprets. Raises SandboxUnavailable."""
    return open_worker(
        device=settings.device,
        interpret=settings.device == "cpu",
        limits=Limits(memory_bytes=settings.memory_bytes),
        allow_unsandboxed=settings.allow_unsandboxed,
    )


def expect_judged(settings: JudgeSettings, count: int = 1) -> None:
    """Start `count` of them in the background, so that nobody waits."""
    expect_worker(
        device=settings.device,
        interpret=settings.device == "cpu",
        limits=Limits(memory_bytes=settings.memory_bytes),
        allow_unsandboxed=settings.allow_unsandboxed,
        count=count,
    )


def on_device(settings: JudgeSettings) -> AbstractContextManager[None]:
    """Around what uses the GPU: nobody times meanwhile."""
    return gate.working() if settings.device == "cuda" else nullcontext()
