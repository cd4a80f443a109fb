"""Indices below zero and past the end: where the original raises, the candidate must too."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from agentkernel.domain.verdict import Failure, RunFailed
from agentkernel.tools.judge.cases.cases import Case
from agentkernel.tools.judge.cases.edges import Edge, edged
from agentkernel.tools.judge.memory import Memory
from agentkernel.tools.judge.reference.question import NotApplicable, Question
from agentkernel.tools.judge.trial import Trial, is_refusal
from agentkernel.tools.sandbox.session import WorkerFailed

EDGES: tuple[Edge, ...] = ("indices below zero", "indices past the end")
EXPECTED = (
    "Expected: it raises too, as by tl.device_assert in a kernel under @triton.jit(debug=True)"
)


def judge_indices(trial: Trial, case: Case, positions: Sequence[int]) -> Failure | None:
    """Ask `case` with the inputs at `positions`, which are indices, out of their range. A GPU's
    worker does not outlive the second of these calls where the candidate is right."""
    plain = trial.asker.ask(case)
    if isinstance(plain, NotApplicable):
        return None
    for edge in EDGES:
        asked = dataclasses.replace(case, edge=edge)
        inputs = edged(plain.inputs, edge, positions, case.seed)
        answer = trial.asker.answer(asked, plain.model, inputs)
        failure = (
            _must_raise(trial, asked, dataclasses.replace(plain, inputs=inputs), answer)
            if isinstance(answer, NotApplicable)
            else _right_or_raises(trial, asked, Question(inputs, plain.model, answer))
        )
        if failure is not None or not trial.worker.alive:
            return failure
    return None


def _right_or_raises(trial: Trial, case: Case, question: Question) -> Failure | None:
    memory = Memory(trial.worker, question)
    try:
        outcome = trial.ask_candidate(case, question, memory)
    finally:
        memory.release()
    refused = outcome.refused
    loud = refused is not None and raised(refused, trial.worker.device)
    return None if loud else outcome.failure


def _must_raise(
    trial: Trial, case: Case, question: Question, why: NotApplicable
) -> RunFailed | None:
    memory = Memory(trial.worker, question)
    try:
        reply = trial.call(case, question, memory)
    finally:
        memory.release()
    if isinstance(reply, WorkerFailed) and raised(reply, trial.worker.device):
        return None
    log = f"{why.reason}; the candidate returned values. {EXPECTED}"
    return RunFailed(reason="out_of_bounds", log=log, case=case.label)


def raised(reply: WorkerFailed, device: str) -> bool:
    """True where nobody can take the end of the call for an answer. A GPU's assertion may end the
    process."""
    return is_refusal(reply) or (device == "cuda" and reply.reason == "died")
