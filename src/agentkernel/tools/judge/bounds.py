"""Does a candidate that was right on a GPU stay within its tensors?

A GPU lets a load or a store past the end pass as long as the address is somebody's. Triton's
interpreter, whose hooks know every tensor of a launch, does not: so a few small cases are run in it
as well. What it cannot run (a descriptor, inline assembly, a module that names its device) is not
held against the candidate, nor are wrong values: those were judged where they count.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkernel.domain.errors import one_line
from agentkernel.domain.verdict import ExecutionFailed, Failure, RunFailed
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.execution.execution import drain_trace
from agentkernel.tools.judge.settings import JudgeSettings
from agentkernel.tools.judge.trial import LOSSY, CaseRunner, NotApplicable, race_found
from agentkernel.tools.judge.workers import open_judge_worker
from agentkernel.tools.problem.problems import LoadedProblem

if TYPE_CHECKING:
    from agentkernel.tools.problem.capture import Captured

NOT_LOOKED = "accesses outside of tensors were not looked for"
CASES = 3
BUDGET_S = 4.0
"""No further case is begun past it."""
CALL_LIMIT_S = 10.0


def interpreted(settings: JudgeSettings) -> JudgeSettings:
    """The same judge in the interpreter, for a look at addresses."""
    return settings.model_copy(
        update={"device": "cpu", "time_limit_s": min(settings.time_limit_s, CALL_LIMIT_S)}
    )


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
        runner = CaseRunner(worker, loaded, captured, settings, [])
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
        return runner.inputs_written() or _written_inputs(runner, settings)


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
