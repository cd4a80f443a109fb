"""Judgement of a launch form: its plain text's cases again, bit for bit, by the same kernels.

The plain text has passed every gate before: its kernels are proved and ablated. What is asked here
is whether replaying them, or launching them past Triton's launcher, is the same.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

from agentkernel.domain.verdict import CaseResult, ExecutionFailed, Failure, RunFailed
from agentkernel.tools.judge.case_runner import CaseRunner
from agentkernel.tools.judge.cases.plan import Case, NotApplicable
from agentkernel.tools.judge.cases.selection import small_case
from agentkernel.tools.judge.comparison.compare import CaseOutcome
from agentkernel.tools.judge.execution.proof import (
    Trace,
    check_trace,
    drain_kept_calls,
    kept_originals,
)
from agentkernel.tools.judge.findings import Findings
from agentkernel.tools.judge.other_inputs import judge_serving_conditions
from agentkernel.tools.judge.policy.launch_form import AS_GRAPH, DIRECTLY
from agentkernel.tools.judge.settings import JudgeSettings, on_device

NOT_RUN = {
    AS_GRAPH: "the CUDA graph was not run: that takes a GPU",
    DIRECTLY: "its kernels were not launched directly: that takes a GPU",
}


def judge_launch_form(
    runner: CaseRunner,
    plan: Sequence[Case],
    settings: JudgeSettings,
    findings: Findings,
    form: str,
) -> Failure | None:
    """Ask `runner`'s candidate, in a launch form, the cases of `plan` that its plain text was
    asked, whose results are in `findings`. Without a GPU it is asked one: its forward launches."""
    small = small_case(plan, settings)
    asked = [case for case in plan if runner.fits(case.shape)]
    if settings.device == "cpu":
        findings.notes.append(NOT_RUN[form])
        asked = [small]
    known = {item.label: item for item in findings.cases}
    judged: list[CaseResult] = []
    begun = time.monotonic()
    for case in asked:
        if not case.required and time.monotonic() - begun > settings.budget_s:
            continue
        with on_device(settings):
            outcome = runner.run(dataclasses.replace(case, variant=form), follow_ups=True)
        if isinstance(outcome, NotApplicable):
            continue
        judged += outcome.results
        failure = outcome.failure
        if failure is None and case.layout == "contiguous" and findings.repeatable is not False:
            failure = _same_bits(outcome, known, form)
        if failure is not None:
            return failure
    with on_device(settings):
        served = judge_serving_conditions(runner, dataclasses.replace(small, variant=form))
    if served.failure is not None:
        return served.failure
    notes = findings.notes if form == AS_GRAPH else []
    return _check_launches(runner, settings, [item.label for item in judged], notes)


def _same_bits(
    outcome: CaseOutcome, known: Mapping[str, CaseResult], form: str
) -> ExecutionFailed | None:
    """Whether all errors are, to the last digit, those of the plain text's call. Other layouts than
    contiguous ones may begin at another address than the graph's own inputs, for which Triton
    compiles another binary: there the bound of the case stands."""
    for item in outcome.results:
        plain = known.get(item.label.replace(f", {form}", ""))
        if plain is not None and item.evolve(label=plain.label) != plain:
            text = f"{form} it computes something else: {_errors(item)}, not {_errors(plain)}"
            return ExecutionFailed(rule="graph", text=text, case=item.label)
    return None


def _errors(item: CaseResult) -> str:
    return f"errors {item.norm_error!r} and {item.largest_error!r}"


def _check_launches(
    runner: CaseRunner, settings: JudgeSettings, labels: Sequence[str], notes: list[str]
) -> Failure | None:
    seen = drain_kept_calls(runner, settings)
    if isinstance(seen, RunFailed):
        return seen
    if settings.device == "cuda":
        replayed = sum(bool(call.replays) for call in seen.calls)
        notes.append(f"the CUDA graph was replayed in {replayed} of {len(seen.calls)} calls")
    traced = check_trace(seen, settings.policy, labels, kept_originals(runner))
    return traced or check_replays(seen, labels)


def check_replays(seen: Trace, labels: Sequence[str]) -> ExecutionFailed | None:
    """Whether each replay runs the kernels, in their order, that were launched from Python in the
    call that recorded it."""
    known: set[tuple[int, ...]] = set()
    for index, call in enumerate(seen.calls):
        replayed = sum(len(kernels) for kernels in call.replays)
        direct = call.launches[: len(call.launches) - replayed]
        known |= {direct} if direct else set()
        for kernels in call.replays:
            if kernels not in known or (direct and kernels != direct):
                launched = seen.names(direct) or "other kernels"
                text = f"its CUDA graph runs {seen.names(kernels) or 'no kernel'}, not {launched}"
                case = labels[index] if index < len(labels) else ""
                return ExecutionFailed(rule="graph", text=text, case=case)
    return None
