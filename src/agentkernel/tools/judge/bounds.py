"""Checks on the other backend: bounds in the interpreter, compilation without a GPU.

A GPU lets a load or a store past the end pass as long as the address is mapped. Triton's
interpreter, whose hooks know every tensor of a launch, does not: a few small cases of a
candidate that was right on a GPU run in it as well. What it cannot run (a descriptor, inline
assembly, a module that names its device) does not count against the candidate, nor do wrong
values: those were judged on the GPU.

The interpreter runs a kernel as Python and lets it do what Python can, such as reach the arrays
behind its tensors. So the forms in which kernels were launched there are compiled to Triton IR,
without a GPU, in a worker that does not interpret.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from agentkernel.domain.errors import one_line
from agentkernel.domain.verdict import CompileFailed, ExecutionFailed, Failure, RunFailed
from agentkernel.storage.source_text import parse_source
from agentkernel.tools.judge.case_runner import LOSSY, CaseRunner
from agentkernel.tools.judge.cases.plan import Case, NotApplicable
from agentkernel.tools.judge.execution.proof import drain_trace
from agentkernel.tools.judge.observations import race_found
from agentkernel.tools.judge.policy.kernel_source import kernel_functions
from agentkernel.tools.judge.settings import JudgeSettings, open_judge_worker
from agentkernel.tools.problem.loading import LoadedProblem
from agentkernel.tools.sandbox.protocol import JSON, WorkerFailed
from agentkernel.tools.sandbox.session import Worker, open_worker
from agentkernel.tools.targets import DEFAULT_TARGET, load_targets

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured


NOT_LOOKED = "accesses outside of tensors were not looked for"
CASES = 3
BUDGET_S = 4.0
"""No further case is begun past it."""
CALL_LIMIT_S = 10.0


def interpreted(settings: JudgeSettings) -> JudgeSettings:
    """The same judge in the interpreter, for a look at addresses."""
    return settings.evolve(device="cpu", time_limit_s=min(settings.time_limit_s, CALL_LIMIT_S))


def find_out_of_bounds(
    loaded: LoadedProblem,
    captured: Captured,
    source: str,
    settings: JudgeSettings,
    plan: Sequence[Case],
    notes: list[str],
) -> Failure | None:
    """The first access outside of every tensor, or meddling with those who look for it.

    `settings` and `plan` are the interpreter's. Raises SandboxUnavailable.
    """
    with open_judge_worker(settings) as worker:
        runner = CaseRunner(worker, loaded, captured, settings, [], eager_only=True)
        built = runner.build(source)
        if built is not None:
            notes.append(f"{NOT_LOOKED}: it does not load in the interpreter")
            return None
        inputs_written = _written_inputs(runner, settings)
        if inputs_written is not None:
            return inputs_written
        begin, done = time.monotonic(), 0
        for case in _few(plan):
            if time.monotonic() - begin > BUDGET_S:
                break
            outcome = runner.run(case)
            if isinstance(outcome, NotApplicable):
                continue
            failure, label = outcome.failure, case.label
            if outcome.outside:
                return RunFailed(reason="out_of_bounds", log=outcome.outside, case=label)
            if outcome.races:
                return race_found(outcome.races)
            if isinstance(failure, RunFailed):
                if failure.reason == "out_of_bounds":
                    return failure
                why = one_line(failure.log.strip().rpartition("\n")[2], 160)
                notes.append(f"{NOT_LOOKED}: the interpreter does not run it ({why})")
                return None
            if isinstance(failure, ExecutionFailed) and failure.rule == LOSSY:
                return failure
            done += bool(outcome.launches)
        if not done:
            notes.append(f"{NOT_LOOKED}: in the interpreter it launches no kernel")
            return None
        return runner.observed.inputs_written() or _written_inputs(runner, settings)


def _few(plan: Sequence[Case]) -> list[Case]:
    """Of the shapes, with plain values, the smallest ones and then the largest."""
    by_shape = {
        case.shape.label: dataclasses.replace(
            case,
            distribution="normal",
            order="ascending",
            layout="contiguous",
            follow_ups=(),
            edge="",
        )
        for case in plan
        if case.required
    }
    ordered = sorted(by_shape.values(), key=lambda case: case.shape.elements)
    return [*ordered[: CASES - 1], *ordered[CASES - 1 :][-1:]]


def _written_inputs(runner: CaseRunner, settings: JudgeSettings) -> ExecutionFailed | None:
    seen = drain_trace(runner.worker, settings)
    if isinstance(seen, RunFailed):
        return None
    for rule, text, _ in seen.violations:
        if rule == "global-state":
            return ExecutionFailed(rule=rule, text=text, case="in the interpreter")
    return None


FORMS = "agentkernel.tools.judge.execution.tracer:forms"
TAKE = "agentkernel.tools.compile.worker:take"
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
