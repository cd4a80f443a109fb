"""Does Triton's compiler take what ran in the interpreter?

The interpreter runs a kernel as Python and lets it do what Python can: reach the arrays behind its
tensors, say. So the forms in which kernels were launched there are compiled to Triton IR, without a
GPU, in a worker that does not interpret.
"""

from __future__ import annotations

import ast
import functools
from typing import cast

from agentkernel.domain.errors import one_line
from agentkernel.domain.verdict import CompileFailed
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.policy.kernel_text import kernel_functions
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.sandbox.protocol import JSON
from agentkernel.tools.sandbox.session import Worker, WorkerFailed, open_worker
from agentkernel.tools.targets import DEFAULT_TARGET, load_targets

FORMS = "agentkernel.tools.judge.execution.witness:forms"
TAKE = "agentkernel.tools.compile.frontend:take"
NOT_COMPILED = "whether Triton compiles the kernels was not seen"
LIMIT_S = 60.0


@functools.cache
def _target() -> str:
    return load_targets()[DEFAULT_TARGET].model_dump_json()


def distinct_forms(forms: list[JSON], source: str) -> list[JSON]:
    """One form of those that go the same way through a kernel. Where no kernel chooses between
    statements, that is one for each set of types: constants change sizes alone."""
    try:
        chooses = any(_chooses(item) for _, item in kernel_functions(parse_source(source)))
    except SyntaxError:
        return forms
    if chooses:
        return forms
    return list({repr(_typed(form)): form for form in forms}.values())


def _chooses(kernel: ast.FunctionDef) -> bool:
    kinds = ast.If | ast.IfExp | ast.While | ast.BoolOp | ast.For | ast.Match
    return any(isinstance(node, kinds) for node in ast.walk(kernel))


def _typed(form: JSON) -> JSON:
    """The form with the types of its numbers and constants for their values."""
    kernel, words = cast("tuple[JSON, list[tuple[str, list[JSON]]]]", form)
    return [
        kernel,
        [
            [name, [kind, *(type(x).__name__ for x in values)]]
            if kind in ("number", "constant")
            else [name, [kind, *values]]
            for name, (kind, *values) in words
        ],
    ]


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


def untried_configurations(worker: Worker, settings: JudgeSettings) -> int:
    """How many configurations of autotuners no launch in the interpreter has taken so far."""
    reply = worker.call(FORMS, {}, settings.time_limit_s)
    found = None if isinstance(reply, WorkerFailed) else reply.get("untried")
    return found if isinstance(found, int) else 0


def check_compiled(
    source: str, forms: list[JSON], settings: JudgeSettings, notes: list[str]
) -> CompileFailed | None:
    """What the compiler refuses. Raises SandboxUnavailable."""
    forms = distinct_forms(forms, source)
    if not forms:
        return None
    payload = {"source": source, "target": _target(), "forms": forms}
    unsandboxed = settings.allow_unsandboxed
    with open_worker(
        device="cpu", interpret=False, frontend=True, allow_unsandboxed=unsandboxed
    ) as worker:
        reply = worker.call(TAKE, payload, LIMIT_S)
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
