"""Does Triton's compiler take what ran in the interpreter?

The interpreter runs a kernel as Python and lets it do what Python can: reach the arrays behind its
tensors, say. So the forms in which kernels were launched there are compiled to Triton IR, without a
GPU, in a worker that does not interpret.
"""

from __future__ import annotations

from typing import cast

from agentkernel.domain.verdict import CompileFailed
from agentkernel.errors import one_line
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.session import Worker, WorkerFailed, open_worker

FORMS = "agentkernel.tools.judge.witness:forms"
TAKE = "agentkernel.tools.compile.frontend:take"
NOT_COMPILED = "whether Triton compiles the kernels was not seen"
LIMIT_S = 60.0


def launched_forms(worker: Worker, settings: JudgeSettings, notes: list[str]) -> list[JSON]:
    """The forms in which the worker's candidate has launched its kernels."""
    reply = worker.call(FORMS, {}, settings.time_limit_s)
    if isinstance(reply, WorkerFailed):
        return []
    left_out = reply.get("left_out")
    if left_out:
        notes.append(f"{NOT_COMPILED} in {left_out} further forms")
    found = reply.get("forms")
    return list(found) if isinstance(found, list) else []


def check_compiled(
    source: str, forms: list[JSON], settings: JudgeSettings, notes: list[str]
) -> CompileFailed | None:
    """What the compiler refuses. Raises SandboxUnavailable."""
    if not forms:
        return None
    unsandboxed = settings.allow_unsandboxed
    with open_worker(device="cpu", interpret=False, allow_unsandboxed=unsandboxed) as worker:
        reply = worker.call(TAKE, {"source": source, "forms": forms}, LIMIT_S)
    if isinstance(reply, WorkerFailed):
        if reply.reason == "raised":
            return CompileFailed(log=f"where it is compiled: {reply.log}", line=reply.line)
        notes.append(f"{NOT_COMPILED}: {reply.reason}")
        return None
    if "refused" in reply:
        return CompileFailed(log=str(reply["refused"]), line=cast("int | None", reply["line"]))
    if "missing" in reply:
        name = one_line(str(reply["missing"]), 80)
        return CompileFailed(log=f"kernel {name} is not there where it is compiled", line=None)
    return None
