"""Indices below zero and past the end: where the original raises, the candidate must too."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from agentkernel.domain.verdict import Failure, RunFailed
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.cases.edges import Edge, with_edge
from agentkernel.tools.judge.memory import CaseMemory
from agentkernel.tools.judge.reference.question import NotApplicable, ReferenceCase
from agentkernel.tools.judge.trial import CaseRunner, is_refusal
from agentkernel.tools.sandbox.session import WorkerFailed

EDGES: tuple[Edge, ...] = ("indices below zero", "indices past the end")
EXPECTED = (
    "Expected: it raises too, as by tl.device_assert in a kernel under @triton.jit(debug=True)"
)


def judge_indices(runner: CaseRunner, case: Case, positions: Sequence[int]) -> Failure | None:
    """Ask `case` with the inputs at `positions`, which are indices, out of their range. A GPU's
    worker does not outlive the second of these calls where the candidate is right."""
    plain = runner.oracle_inputs.ask(case)
    if isinstance(plain, NotApplicable):
        return None
    for edge in EDGES:
        asked = dataclasses.replace(case, edge=edge)
        inputs = with_edge(plain.inputs, edge, positions, case.seed)
        answer = runner.oracle_inputs.answer(asked, plain.model, inputs)
        failure = (
            _must_raise(runner, asked, dataclasses.replace(plain, inputs=inputs), answer)
            if isinstance(answer, NotApplicable)
            else _right_or_raises(runner, asked, ReferenceCase(inputs, plain.model, answer))
        )
        if failure is not None or not runner.worker.alive:
            return failure
    return None


def _right_or_raises(
    runner: CaseRunner, case: Case, reference_case: ReferenceCase
) -> Failure | None:
    memory = CaseMemory(runner.worker, reference_case)
    try:
        outcome = runner.ask_candidate(case, reference_case, memory)
    finally:
        memory.release()
    refused = outcome.refused
    loud = refused is not None and call_raised(refused, runner.worker.device)
    return None if loud else outcome.failure


def _must_raise(
    runner: CaseRunner, case: Case, reference_case: ReferenceCase, why: NotApplicable
) -> RunFailed | None:
    memory = CaseMemory(runner.worker, reference_case)
    try:
        reply = runner.call(case, reference_case, memory)
    finally:
        memory.release()
    if isinstance(reply, WorkerFailed) and call_raised(reply, runner.worker.device):
        return None
    log = f"{why.reason}; the candidate returned values. {EXPECTED}"
    return RunFailed(reason="out_of_bounds", log=log, case=case.label)


def call_raised(reply: WorkerFailed, device: str) -> bool:
    """True where nobody can take the end of the call for an answer. A GPU's assertion may end the
    process."""
    return is_refusal(reply) or (device == "cuda" and reply.reason == "died")
